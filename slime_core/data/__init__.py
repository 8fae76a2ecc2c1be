"""Data: the tokenizer, the readers of prompt files, and the default data source with exact state."""

from slime_core.data.chat_template import ChatTemplate
from slime_core.data.prompt_file import Prompt, PromptSet, read_prompts
from slime_core.data.prompts import PromptSource
from slime_core.data.rows import Row, read_rows
from slime_core.data.tokenizer import HfTokenizer

__all__ = [
    "ChatTemplate",
    "HfTokenizer",
    "Prompt",
    "PromptSet",
    "PromptSource",
    "Row",
    "read_prompts",
    "read_rows",
]
