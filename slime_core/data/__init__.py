"""Data: the tokenizer, the readers of prompt files, and the core's data sources, which resume exactly."""

from typing import TYPE_CHECKING

from slime_core.lazy import exports

if TYPE_CHECKING:
    from slime_core.data.chat_template import ChatTemplate as ChatTemplate
    from slime_core.data.prompts import PromptSource as PromptSource
    from slime_core.data.prompts import PromptTable as PromptTable
    from slime_core.data.prompts import mixture_source as mixture_source
    from slime_core.data.prompts import name_files as name_files
    from slime_core.data.prompts import prompt_source as prompt_source
    from slime_core.data.prompts import row_source as row_source
    from slime_core.data.rendering import Finder as Finder
    from slime_core.data.rendering import Renderer as Renderer
    from slime_core.data.row_reader import Prompt as Prompt
    from slime_core.data.rows import Row as Row
    from slime_core.data.rows import read_rows as read_rows
    from slime_core.data.tokenizer import HfTokenizer as HfTokenizer
    from slime_core.data.tokenizer import check_template_kwargs as check_template_kwargs
    from slime_core.data.tokenizer import token_texts as token_texts
    from slime_core.data.tokenizer import with_bos as with_bos
else:
    __getattr__, __all__ = exports(__name__)
