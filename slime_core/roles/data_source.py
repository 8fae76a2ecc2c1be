"""Data source: draws groups of pending samples, for ever, from exact and savable state.

Example:

    groups = await source.draw(64)       # 64 groups, each of n_samples_per_prompt pending samples
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

from slime_core.roles._spec import Setup, Spec
from slime_core.roles.tokenizer import Tokenizer
from slime_core.sample import Group, Json, Sample

MediaKeys: TypeAlias = Mapping[Literal["image", "video", "audio"], str]
"""Column of each kind of media."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFormat:
    """How rows become prompts; slime's flags of the same names."""

    input_key: str = "input"
    """Column of the prompt: a string, or a list of chat messages."""
    label_key: str | None = None
    """Column of the gold answer, or a place within one, `reward_model.ground_truth`; a row without it is a bad row."""
    metadata_key: str = "metadata"
    """Column of a mapping kept as `sample.metadata`; may be absent."""
    tool_key: str = "tools"
    """Column of tool definitions for the chat template; may be absent."""
    multimodal_keys: MediaKeys | None = None
    """Column of each kind of media, `{"image": "images"}`; the text says `<image>` where each belongs."""
    apply_chat_template: bool = False
    """Whether to render the prompt through the model's chat template."""
    apply_chat_template_kwargs: Mapping[str, Json] | None = None
    """Extra arguments of the chat template."""
    final_assistant_message: Literal["refuse", "continue", "cut"] = "refuse"
    """What becomes of an assistant message that ends a prompt: a bad row, continued by the model, or left out."""
    max_prompt_len: int | None = None
    """Prompts of more tokens are left out, and counted; None keeps all."""
    bad_rows: Literal["raise", "skip"] = "raise"
    """Whether a row that cannot be used is an error, or is left out and counted."""
    max_bad_row_rate: float = 0.05
    """With "skip": the share of bad rows above which they are an error all the same."""
    flag_prefix: str = ""
    """Comes before its keys where they are flags: `eval-` of `--eval-label-key`."""
    check: Callable[[Sample], str | None] | None = field(default=None, compare=False)
    """Returns why the run cannot use a row, given as a pending sample, or None. Such a row is a bad row, too."""


@dataclass(frozen=True, slots=True)
class PromptFile(RowFormat):
    """One prompt file and how to read its rows."""

    path: Path
    """A .jsonl or .parquet file, or a directory saved by HF `datasets`; `file@[a:b]` takes a slice of its rows."""
    name: str
    """Name of the data set: the first part of every group's identity."""

    @classmethod
    def of(cls, path: Path, name: str, row_format: RowFormat) -> "PromptFile":
        """A file whose rows are of a format."""
        return cls(path, name, **{each.name: getattr(row_format, each.name) for each in fields(RowFormat)})


@dataclass(frozen=True, slots=True)
class DataSourceSetup(Setup):
    """What a data source's factory is given."""

    prompts: Sequence[PromptFile]
    """The files of the run's `prompt_data`, their names all different; empty when a source makes its own prompts."""
    tokenizer: Tokenizer
    """The policy's tokenizer."""
    n_samples_per_prompt: int
    """Samples in each drawn group."""
    shuffle: bool
    """Whether each epoch has its own order, derived from the seed."""
    row_format: RowFormat = field(default_factory=RowFormat)
    """How the run reads rows, for sources that find or make their own."""
    accept_changed_data: bool = False
    """Whether `load_state_dict` takes a position in data that has changed since."""


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


@runtime_checkable
class DescribesData(Protocol):
    """A data source that tells what it read and what it left out; optional."""

    def data_metrics(self) -> Mapping[str, float]:
        """Counts for the metrics, by names that begin with `data/`."""
        ...

    def data_notes(self) -> Sequence[str]:
        """A sentence for everything that was left out, for `slime plan` and the display."""
        ...


@dataclass(frozen=True)
class DataSourceSpec(Spec[DataSource]):
    """Offers a data source."""

    role: ClassVar[str] = "data_source"
    reads_prompt_data: bool | None = True
    """Whether `prompt_data` is required; False for sources that make their own prompts, None where they may read it."""
