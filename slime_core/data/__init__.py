"""Data: the tokenizer, the readers of prompt files, and the data sources of the core, with exact state."""

from typing import TYPE_CHECKING

from slime_core._lazy import exports

if TYPE_CHECKING:
    from slime_core.data.chat_template import ChatTemplate
    from slime_core.data.dialogs import Dialog, DialogReader
    from slime_core.data.files import read_rows
    from slime_core.data.generated import RowMaker, generated_source, generated_source_of
    from slime_core.data.prompts import PromptSource
    from slime_core.data.reasoning_gym import ReasoningGymReward, reasoning_gym_source
    from slime_core.data.row_reader import Prompt
    from slime_core.data.rows import Row
    from slime_core.data.sources import (
        EveryPrompt,
        every_prompt,
        mixture_source,
        name_files,
        prompt_source,
        row_source,
    )
    from slime_core.data.tokenizer import HfTokenizer

_HOMES = {
    "slime_core.data.chat_template": "ChatTemplate",
    "slime_core.data.dialogs": "Dialog DialogReader",
    "slime_core.data.generated": "RowMaker generated_source generated_source_of",
    "slime_core.data.prompts": "PromptSource",
    "slime_core.data.reasoning_gym": "ReasoningGymReward reasoning_gym_source",
    "slime_core.data.row_reader": "Prompt",
    "slime_core.data.files": "read_rows",
    "slime_core.data.rows": "Row",
    "slime_core.data.sources": "EveryPrompt every_prompt mixture_source name_files prompt_source row_source",
    "slime_core.data.tokenizer": "HfTokenizer",
}

__getattr__ = exports(__name__, _HOMES)

__all__ = [
    "ChatTemplate",
    "Dialog",
    "DialogReader",
    "EveryPrompt",
    "HfTokenizer",
    "Prompt",
    "PromptSource",
    "ReasoningGymReward",
    "Row",
    "RowMaker",
    "every_prompt",
    "generated_source",
    "generated_source_of",
    "mixture_source",
    "name_files",
    "prompt_source",
    "read_rows",
    "reasoning_gym_source",
    "row_source",
]
