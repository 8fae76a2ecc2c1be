"""Data source: draws groups of pending samples, for ever, from exact and savable state.

Example:

    groups = await source.draw(64)       # 64 groups, each of n_samples_per_prompt pending samples
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from slime_core.roles._spec import Setup, Spec
from slime_core.roles.tokenizer import Tokenizer
from slime_core.sample import Group, Json


@dataclass(frozen=True, slots=True)
class PromptFile:
    """One prompt file and how to read its rows; slime's flags of the same names."""

    path: Path
    """A .jsonl or .parquet file; `file@[a:b]` takes a slice of its rows."""
    name: str
    """Name of the data set: the first part of every group's identity."""
    input_key: str = "input"
    """Column of the prompt: a string, or a list of chat messages."""
    label_key: str | None = None
    """Column of the gold answer."""
    metadata_key: str = "metadata"
    """Column of a mapping kept as `sample.metadata`; may be absent."""
    tool_key: str = "tools"
    """Column of tool definitions for the chat template; may be absent."""
    apply_chat_template: bool = False
    """Whether to render the prompt through the model's chat template."""
    apply_chat_template_kwargs: Mapping[str, Json] | None = None
    """Extra arguments of the chat template."""
    max_prompt_len: int | None = None
    """Prompts of more tokens are left out, and counted; None keeps all."""


@dataclass(frozen=True, slots=True)
class DataSourceSetup(Setup):
    """What a data source's factory is given."""

    prompts: PromptFile | None
    """The run's `prompt_data`; None when a source makes its own prompts."""
    tokenizer: Tokenizer
    """The policy's tokenizer."""
    n_samples_per_prompt: int
    """Samples in each drawn group."""
    shuffle: bool
    """Whether each epoch has its own order, derived from the seed."""


@runtime_checkable
class DataSource(Protocol):
    """Where prompts come from. After `load_state_dict(state_dict())` it continues exactly."""

    async def draw(self, count: int) -> list[Group]:
        """Exactly `count` new groups; requeued ones first."""
        ...

    def add(self, groups: Sequence[Group]) -> None:
        """Take back groups that were drawn and not finished."""
        ...

    def state_dict(self) -> dict[str, Json]:
        """Everything needed to continue, as plain JSON."""
        ...

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue from a saved state."""
        ...

    def __len__(self) -> int:
        """Prompts in one epoch."""
        ...


@runtime_checkable
class NamesChoices(Protocol):
    """A data source that knows before it draws which rewards and generators its samples name; optional.

    A name that does not exist is then refused before any process starts, and else at its first draw.
    """

    def named_choices(self) -> Mapping[tuple[str, str], str]:
        """By role ("reward" or "generator") and name: where it is named first, such as `train.jsonl:3`."""
        ...


@dataclass(frozen=True)
class DataSourceSpec(Spec[DataSource]):
    """Offers a data source."""

    role: ClassVar[str] = "data_source"
    reads_prompt_data: bool = True
    """Whether `prompt_data` is required; False for sources that make their own prompts."""
