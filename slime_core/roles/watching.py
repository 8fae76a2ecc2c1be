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
from functools import update_wrapper
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
from slime_core.roles.spec import Settings, Setup, Spec
from slime_core.roles.trainer import TrainerSpec
from slime_core.roles.weights import TransportSpec
from slime_core.sample import Json

# Tracker: sends metrics somewhere else than the run folder's own metrics.jsonl.


@dataclass(frozen=True, slots=True)
class TrackerSetup(Setup):
    """What a tracker's factory is given."""

    run_dir: Path
    """The run folder."""


@runtime_checkable
class Tracker(Protocol):
    """Receives every metrics row once, in order; after a resume, rows from the resumed step on come again."""

    async def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics of one step."""
        ...

    async def close(self) -> None:
        """Flush."""
        ...


@dataclass(frozen=True)
class TrackerSpec(Spec[Tracker]):
    """Offers a tracker."""

    role: ClassVar[str] = "tracker"
    many: ClassVar[bool] = True


# Check: one thing that `slime doctor` looks at.


class Health(enum.Enum):
    """How a check went."""

    OK = "ok"
    """Nothing to do."""
    WARNING = "warning"
    """It works, but not as well as it could."""
    ERROR = "error"
    """It does not work; `slime doctor` exits with 1."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found."""

    health: Health
    """How it went."""
    text: str
    """One line: what was looked at and what was found."""
    advice: str = ""
    """What to type."""


@runtime_checkable
class Check(Protocol):
    """A quick, harmless look; raising counts as an error of the check."""

    def __call__(self) -> Finding:
        """Look, and say what was found."""
        ...


@dataclass(frozen=True)
class CheckSpec(Spec[Check]):
    """Offers a check; `slime doctor` runs all that are installed."""

    role: ClassVar[str] = "check"
    many: ClassVar[bool] = True
    selectable: ClassVar[bool] = False

    @classmethod
    def from_function(cls, name: str, function: Check, summary: str = "") -> "CheckSpec":
        """A spec for a plain function without settings."""

        def factory(settings: Settings, setup: Setup) -> Check:
            return function

        # The origin that is printed is the function's, not this factory's.
        return cls(name, update_wrapper(factory, function, updated=()), summary=summary)


# ForeignName: what another framework calls a key or a flag, so that who types it is told what it is here.


@dataclass(frozen=True, slots=True)
class ForeignName:
    """One name from elsewhere; yielded by the hook `slime_foreign_names`."""

    name: str
    """The key as it is written there, with underscores; case does not count."""
    key: str = ""
    """Our key for it, or for the closest thing to it; empty where there is none."""
    framework: str = field(default="", kw_only=True)
    """Whose name it is; empty where several use it."""
    values: Mapping[str, Json] = field(default_factory=dict, kw_only=True, hash=False)
    """What their values are here, where they differ."""
    advice: str = field(default="", kw_only=True)
    """What to do instead, or besides: what to write, or why there is no such thing."""
    means: Callable[[Json], Mapping[str, Json] | None] | None = field(default=None, kw_only=True, compare=False)
    """Gives the keys that mean exactly the same, which the run then takes; None, or if it returns None: an error."""
    is_switch: bool = field(default=False, kw_only=True)
    """Of one that is taken: whether it is typed without a value, which is then true."""

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
"""Every role by name, in the order in which a sample meets them."""
SELECTABLE = tuple(role for role, spec in SPECS.items() if spec.selectable)
"""The roles that run files choose for."""
