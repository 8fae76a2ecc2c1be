"""Batch transform: adds declared columns to what the trainer gets, or replaces the loss mask.

Example:

    class TurnIndex:
        def __call__(self, sample, group, ctx):
            return {"turn": sample.metadata["turn_of_token"]}           # one number a response token

    BatchTransformSpec("turns", TurnIndex, columns={"turn": Grain.TOKEN})
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

from slime_core.roles._spec import Spec, Stability
from slime_core.roles.reward_shaper import ShapeContext
from slime_core.sample import Group, Sample

LOSS_MASK = "loss_mask"
"""A token column of this name replaces the sample's loss mask; it may take tokens out, not put them in."""


class Grain(enum.Enum):
    """What a column has one number for."""

    SAMPLE = "sample"
    """Each sample; losses and estimators read it from `columns_S`."""
    TOKEN = "token"
    """Each response token; losses and estimators read it from `columns_T`."""


@runtime_checkable
class BatchTransform(Protocol):
    """A pure function of one sample that is about to be trained on."""

    def __call__(self, sample: Sample, group: Group, ctx: ShapeContext) -> Mapping[str, float | Sequence[float]]:
        """Return a value for every declared column: a number, or one a response token."""
        ...


@dataclass(frozen=True)
class BatchTransformSpec(Spec[BatchTransform]):
    """Offers a batch transform (slime: `--custom-convert-samples-to-train-data-path`)."""

    role: ClassVar[str] = "batch_transform"
    many: ClassVar[bool] = True
    stability: ClassVar[Stability] = Stability.PROVISIONAL

    columns: Mapping[str, Grain] = field(default_factory=dict)
    """The columns that it makes; a name belongs to one transform of a run."""

    def __post_init__(self) -> None:
        Spec.__post_init__(self)
        if not self.columns:
            raise ValueError(f"BatchTransformSpec {self.name!r}: declare its columns, {{NAME: Grain.TOKEN}}")
        for column, grain in self.columns.items():
            if not column.isidentifier():
                raise ValueError(f"BatchTransformSpec {self.name!r}: column {column!r} is not an identifier")
            if column == LOSS_MASK and grain is not Grain.TOKEN:
                raise ValueError(f"BatchTransformSpec {self.name!r}: {LOSS_MASK!r} is a column of Grain.TOKEN")
