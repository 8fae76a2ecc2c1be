"""The roles that samples pass from prompt to batch: data source, buffer, their filters and the batch transform.

The order is: data source, group filter, sample filter, buffer with its filter, batch transform. Each role is one
small protocol with a spec; the default choices are in `slime_core.data`, `slime_core.rollout` and
`slime_core.buffer`.

Example:

    class NonzeroStd:
        def __call__(self, group, ctx):
            return Keep() if max(group.rewards) > min(group.rewards) else Drop("zero_std")
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

from slime_core.roles.generation import Tokenizer
from slime_core.roles.rewards import ShapeContext
from slime_core.roles.spec import Setup, Spec, Stability
from slime_core.sample import Group, GroupId, Json, Sample

# Data source: draws an endless sequence of pending groups, and resumes exactly from its saved state.

MediaKeys: TypeAlias = Mapping[Literal["image", "video", "audio"], str]
"""Column of each kind of media."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFormat:
    """How rows become prompts; slime's flags of the same names."""

    input_key: str = "input"
    """Column of the prompt: a string, or a list of chat messages."""
    label_key: str | None = None
    """Column of the gold answer, or a path such as `reward_model.ground_truth`. A row without it is a bad row."""
    metadata_key: str = "metadata"
    """Column of a mapping kept as `sample.metadata`; may be absent."""
    tool_key: str = "tools"
    """Column of tool definitions for the chat template; may be absent."""
    multimodal_keys: MediaKeys | None = None
    """Column of each kind of media, `{"image": "images"}`; `<image>` in the text marks the place of each."""
    apply_chat_template: bool = False
    """Whether to render the prompt through the model's chat template."""
    apply_chat_template_kwargs: Mapping[str, Json] | None = None
    """Extra arguments of the chat template."""
    final_assistant_message: Literal["refuse", "continue", "cut"] = "refuse"
    """Handling of an assistant message that ends a prompt: a bad row, continued by the model, or removed."""
    max_prompt_len: int | None = None
    """Longer prompts, in tokens, are left out and counted. None keeps all."""
    max_bad_row_rate: float = 0.0
    """Largest share of bad rows, which are left out and counted. A larger share is an error."""
    flag_prefix: str = ""
    """Prefix of its keys as flags: `eval-` in `--eval-label-key`."""
    check: Callable[[Sample], str | None] | None = field(default=None, compare=False)
    """Returns why the run cannot use a row (given as a pending sample), which makes it a bad row; None if it can."""


@dataclass(frozen=True, slots=True)
class PromptFile(RowFormat):
    """One prompt file and how to read its rows."""

    path: Path
    """A .jsonl or .parquet file; `file@[a:b]` takes a slice of its rows."""
    name: str
    """Name of the data set: the first part of every group's identity."""

    @classmethod
    def of(cls, path: Path, name: str, row_format: RowFormat) -> "PromptFile":
        """A prompt file read with this row format."""
        return cls(path, name, **{each.name: getattr(row_format, each.name) for each in fields(RowFormat)})


@dataclass(frozen=True, slots=True)
class DataSourceSetup(Setup):
    """What a data source's factory receives."""

    prompts: Sequence[PromptFile]
    """The files of the run's `prompt_data`, with unique names. Empty if the source makes its own prompts."""
    tokenizer: Tokenizer
    """The policy's tokenizer."""
    n_samples_per_prompt: int
    """Samples in each drawn group."""
    shuffle: bool
    """Whether each epoch has its own order, derived from the seed."""
    row_format: RowFormat = field(default_factory=RowFormat)
    """How the run reads rows, for sources that find or make their own."""
    accept_changed_data: bool = False
    """Whether `load_state_dict` accepts a position in data that has changed since it was saved."""


@runtime_checkable
class DataSource(Protocol):
    """Where prompts come from. After `load_state_dict(state_dict())` it continues exactly."""

    async def draw(self, count: int) -> list[Group]:
        """Return exactly `count` groups; groups from `add` come first."""

    def add(self, groups: Sequence[Group]) -> None:
        """Requeue groups that were drawn but not finished."""

    def state_dict(self) -> dict[str, Json]:
        """Everything needed to continue, as plain JSON."""

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue from a saved state."""

    def __len__(self) -> int:
        """Prompts in one epoch."""


@runtime_checkable
class NamesChoices(Protocol):
    """Optional: a data source that can list the rewards and generators that its samples name, without drawing.

    An unknown name is then rejected before any process starts; without this protocol, at its first draw.
    """

    def named_choices(self) -> Mapping[tuple[str, str], str]:
        """Maps (role, name) to its first occurrence, such as `train.jsonl:3`; the role is "reward" or "generator"."""


@runtime_checkable
class DescribesData(Protocol):
    """Optional: a data source that reports what it read and what it left out."""

    def data_metrics(self) -> Mapping[str, float]:
        """Counts for the metrics; their names begin with `data/`."""

    def data_notes(self) -> Sequence[str]:
        """One sentence for each kind of omission, for `slime plan` and the display."""


@dataclass(frozen=True)
class DataSourceSpec(Spec[DataSource]):
    """Offers a data source: where prompts come from."""

    role: ClassVar[str] = "data_source"
    stability: ClassVar[Stability] = Stability.STABLE
    reads_prompt_data: bool | None = True
    """Whether `prompt_data` is required. False: the source makes its own prompts. None: `prompt_data` is optional."""


# Buffer filter: a pure choice of which held groups to train on next, and which to drop.


@dataclass(frozen=True, slots=True)
class BufferContext:
    """The point in the run at which the buffer is called."""

    rollout_id: int
    """Number of the rollout, from 0."""
    weight_version: int
    """Version of the weights about to be trained. A group's staleness is this minus its oldest version."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Positions in the sequence that the filter was given."""

    take: Sequence[int]
    """Train on these now, in this order; at most `want`, no repeats."""
    drop: Sequence[int] = ()
    """Never train on these; disjoint from `take`."""


@runtime_checkable
class BufferFilter(Protocol):
    """A pure function of the held groups. The core checks its selection and removes the groups."""

    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        """Choose at most `want` of `groups`."""


@dataclass(frozen=True)
class BufferFilterSpec(Spec[BufferFilter]):
    """Offers a buffer filter: which held groups are trained on next."""

    role: ClassVar[str] = "buffer_filter"
    stability: ClassVar[Stability] = Stability.STABLE


# Buffer: holds finished groups between rollout and training, and returns them with importance weights.


@dataclass(frozen=True, slots=True)
class Draw:
    """Groups to train on."""

    groups: Sequence[Group]
    """At most `want` groups, without repeats, all of them held by the buffer."""
    weights: Sequence[float]
    """Importance weight of each group in the loss, finite and 0 or more; 1.0 without priorities."""


@dataclass(frozen=True, slots=True)
class Replay:
    """How often a buffer returns one group. The core sizes generation by it, and its ledger counts the uses."""

    max_uses: int = 1
    """Most uses of one group; the buffer drops it after the last one."""
    ratio: float = 1.0
    """Mean uses of a group, 1 to `max_uses`; exceeded only while the buffer cannot fill a batch."""
    max_staleness: int | None = None
    """Staleness in weight versions above which the buffer drops a group; None: no limit."""

    def __post_init__(self) -> None:
        if not 1 <= self.ratio <= self.max_uses:
            raise ValueError(f"the mean uses of a group are 1 to max_uses = {self.max_uses}, not {self.ratio}")


@dataclass(frozen=True, slots=True)
class BufferSetup(Setup):
    """What a buffer's factory receives."""

    buffer_filter: BufferFilter
    """The run's filter, for buffers that use one. The core already checks its selections."""


@runtime_checkable
class Buffer(Protocol):
    """Groups between rollout and training. The core calls it from one task, never concurrently."""

    def add(self, groups: Sequence[Group]) -> None:
        """Add finished groups."""

    def sample(self, want: int, ctx: BufferContext) -> Draw:
        """Return at most `want` groups."""

    def update(self, scores: Mapping[GroupId, float]) -> None:
        """Receive the mean absolute advantage of each trained group."""

    def evict(self, ctx: BufferContext) -> Mapping[GroupId, str]:
        """Remove groups that will not be trained again; returns the reason of each.

        Called after a step with the context of the next one: remove groups that will be too old by then.
        """

    def state_dict(self) -> dict[str, Json]:
        """Everything needed to continue, as plain JSON, held groups included."""

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue from a saved state."""

    def __len__(self) -> int:
        """Groups that `sample` can still return."""


@dataclass(frozen=True)
class BufferSpec(Spec[Buffer]):
    """Offers a buffer: what holds finished groups."""

    role: ClassVar[str] = "buffer"
    uses_buffer_filter: bool = False
    """Whether it uses the run's buffer filter."""
    replay: Callable[..., Replay] = lambda settings: Replay()
    """`replay(settings)`: how often it returns one group; once by default."""


# Group filter: decides whether a finished group is trained on (dynamic sampling).


@dataclass(frozen=True, slots=True)
class Keep:
    """Train on this group."""


@dataclass(frozen=True, slots=True)
class Drop:
    """Do not train on this group."""

    reason: str
    """A short, countable text; becomes `rollout/dynamic_filter/drop_<reason>`."""


@dataclass(frozen=True, slots=True)
class KeepIfShort:
    """Drop this group unless the rollout would otherwise have too few groups."""

    reason: str
    """As in `Drop`."""


Decision = Keep | Drop | KeepIfShort


@dataclass(frozen=True, slots=True)
class FilterContext:
    """What a filter receives in addition to the group."""

    rollout_id: int
    """Number of the rollout, from 0."""


@runtime_checkable
class GroupFilter(Protocol):
    """A pure, quick function of one finished group."""

    def __call__(self, group: Group, ctx: FilterContext) -> Decision:
        """Return `Keep`, `Drop` or `KeepIfShort`."""


@dataclass(frozen=True)
class GroupFilterSpec(Spec[GroupFilter]):
    """Offers a group filter: which finished groups are trained on."""

    role: ClassVar[str] = "group_filter"
    stability: ClassVar[Stability] = Stability.STABLE


# Sample filter: takes single samples of a finished rollout out of training; their rewards still count for their
# group.


@dataclass(frozen=True, slots=True)
class Removal:
    """One sample to exclude from training: its `remove_sample` is set, and its loss mask counts as zeros."""

    group: GroupId
    """Its group."""
    position: int
    """Its position among the group's samples, from 0."""
    reason: str
    """A short, countable text; becomes `rollout/sample_filter/<reason>`."""


@runtime_checkable
class SampleFilter(Protocol):
    """A pure, quick function of all kept groups of a rollout."""

    def __call__(self, groups: Sequence[Group], ctx: FilterContext) -> Sequence[Removal]:
        """Return the samples to remove. Samples that are already removed stay removed."""


@dataclass(frozen=True)
class SampleFilterSpec(Spec[SampleFilter]):
    """Offers a sample filter (slime: `--rollout-sample-filter-path`); several run in the order given."""

    role: ClassVar[str] = "sample_filter"
    stability: ClassVar[Stability] = Stability.STABLE
    many: ClassVar[bool] = True


# Batch transform: adds declared columns to the training batch, or replaces the loss mask.

LOSS_MASK = "loss_mask"
"""A token column of this name replaces the sample's loss mask. It may mask more tokens, never fewer."""


class Grain(enum.Enum):
    """Whether a column has one number per sample or per token."""

    SAMPLE = "sample"
    """Each sample; losses and estimators read it from `columns_S`."""
    TOKEN = "token"
    """Each response token; losses and estimators read it from `columns_T`."""


@runtime_checkable
class BatchTransform(Protocol):
    """A pure function of one sample that is about to be trained on."""

    def __call__(self, sample: Sample, group: Group, ctx: ShapeContext) -> Mapping[str, float | Sequence[float]]:
        """Return a value for every declared column: one number, or one number per response token."""


@dataclass(frozen=True)
class BatchTransformSpec(Spec[BatchTransform]):
    """Offers a batch transform (slime: `--custom-convert-samples-to-train-data-path`)."""

    role: ClassVar[str] = "batch_transform"
    many: ClassVar[bool] = True

    columns: Mapping[str, Grain] = field(default_factory=dict)
    """The columns that it makes. Two transforms of a run cannot make the same column."""

    def __post_init__(self) -> None:
        Spec.__post_init__(self)
        if not self.columns:
            raise ValueError(f"BatchTransformSpec {self.name!r}: declare its columns, {{NAME: Grain.TOKEN}}")
        for column, grain in self.columns.items():
            if not column.isidentifier():
                raise ValueError(f"BatchTransformSpec {self.name!r}: column {column!r} is not an identifier")
            if column == LOSS_MASK and grain is not Grain.TOKEN:
                raise ValueError(f"BatchTransformSpec {self.name!r}: {LOSS_MASK!r} is a column of Grain.TOKEN")
