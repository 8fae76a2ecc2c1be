"""The roles that take no part in training: tracker, doctor check, foreign names; and the table of all roles.

A tracker sends metrics to a service. A check is one test of `slime doctor`. A `ForeignName` maps a key or a flag of
another framework to the key here with exactly the same meaning.

Example:

    ForeignName("learning_rate", "lr", framework="TRL")
    ForeignName("rm_type", framework="slime", means=lambda value: {"reward": {"use": value}})
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from slime_core.roles.algorithm import AdvantageSpec, CorrectionSpec, LossSpec
from slime_core.roles.data import (
    BatchTransformSpec,
    BufferFilterSpec,
    BufferSpec,
    DataSourceSpec,
    GroupFilterSpec,
    SampleFilterSpec,
)
from slime_core.roles.engine import EngineSpec
from slime_core.roles.generator import GeneratorSpec
from slime_core.roles.launcher import LauncherSpec
from slime_core.roles.rewards import GroupRewardSpec, RewardShaperSpec, RewardSpec
from slime_core.roles.spec import Setup, Spec, Stability
from slime_core.roles.trainer import TrainerSpec
from slime_core.roles.weights import TransportSpec
from slime_core.sample import Json

# Tracker: sends metrics to a service, in addition to the run folder's metrics.jsonl.


@dataclass(frozen=True, slots=True)
class TrackerSetup(Setup):
    """What a tracker's factory receives."""

    run_dir: Path
    """The run folder."""


@runtime_checkable
class Tracker(Protocol):
    """Receives every metrics row once, in order. After a resume, rows from the resumed step on are sent again."""

    async def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics of one step."""

    async def close(self) -> None:
        """Flush."""


@dataclass(frozen=True)
class TrackerSpec(Spec[Tracker]):
    """Offers a tracker: which service receives metrics."""

    role: ClassVar[str] = "tracker"
    stability: ClassVar[Stability] = Stability.STABLE
    many: ClassVar[bool] = True


# Check: one test of `slime doctor`.


class Health(enum.Enum):
    """Result of a check."""

    OK = "ok"
    """No action needed."""
    WARNING = "warning"
    """Works, but could work better."""
    ERROR = "error"
    """Does not work; `slime doctor` exits with 1."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check, with text and advice."""

    health: Health
    """The result."""
    text: str
    """One line: what was checked and what was found."""
    advice: str = ""
    """A command or an edit that helps."""


@runtime_checkable
class Check(Protocol):
    """A quick test without side effects. An exception counts as an error of the check."""

    def __call__(self) -> Finding:
        """Run the test and return its result."""


@dataclass(frozen=True)
class CheckSpec(Spec[Check]):
    """Offers a check; `slime doctor` runs all that are installed."""

    role: ClassVar[str] = "check"
    many: ClassVar[bool] = True
    selectable: ClassVar[bool] = False


# ForeignName: another framework's name of a key or a flag. A user who types it learns the name here.


@dataclass(frozen=True, slots=True)
class ForeignName:
    """One name of another framework; yielded by the hook `slime_foreign_names`."""

    name: str
    """The other framework's key, with underscores; matched without case."""
    key: str = ""
    """The equivalent or closest key here; empty if there is none."""
    framework: str = field(default="", kw_only=True)
    """The framework; empty if several use the name."""
    values: Mapping[str, Json] = field(default_factory=dict, kw_only=True, hash=False)
    """Their value -> the value here, where they differ."""
    advice: str = field(default="", kw_only=True)
    """What to write instead or in addition, or why there is no equivalent."""
    means: Callable[[Json], Mapping[str, Json] | None] | None = field(default=None, kw_only=True, compare=False)
    """Returns keys with exactly the same meaning, which the run then uses. None, as field or result: an error."""
    is_switch: bool = field(default=False, kw_only=True)
    """With `means`: whether the flag takes no value and means true."""

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name != self.name.lower():
            raise ValueError(f"ForeignName {self.name!r}: write it in small letters, with underscores")
        if not self.key and not self.advice and self.means is None:
            raise ValueError(f"ForeignName {self.name!r}: give the key that it is here, what it means, or advice")
        if self.values and not self.key:
            raise ValueError(f"ForeignName {self.name!r}: values are of a key, and none is given")


SPECS: dict[str, type[Spec[object]]] = {
    spec.role: spec
    for spec in (
        DataSourceSpec,
        GeneratorSpec,
        RewardSpec,
        GroupRewardSpec,
        GroupFilterSpec,
        SampleFilterSpec,
        BufferSpec,
        BufferFilterSpec,
        RewardShaperSpec,
        BatchTransformSpec,
        AdvantageSpec,
        LossSpec,
        CorrectionSpec,
        EngineSpec,
        TrainerSpec,
        TransportSpec,
        LauncherSpec,
        TrackerSpec,
        CheckSpec,
    )
}
"""Every role by name, in the order in which a sample passes them."""
SELECTABLE = tuple(role for role, spec in SPECS.items() if spec.selectable)
"""The roles whose choice a run file selects."""
