"""Chosen: one choice of one role, ready to be built; and all that a run chose, by role.

A spec's class names its role and types what comes back.

Example:

    roles.one(EngineSpec).spec.bf16                     # a Chosen[EngineSpec]
    [each.reference for each in roles.all(RewardSpec)]
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, cast

from typing_extensions import TypeVar

from slime_core.catalog import Registered
from slime_core.roles import Choice, Settings, Spec

SpecT = TypeVar("SpecT", bound=Spec[object], covariant=True, default=Spec[object])
OneT = TypeVar("OneT", bound=Spec[object])


@dataclass(frozen=True, slots=True)
class Chosen(Generic[SpecT]):
    """One choice of one role."""

    reference: str
    """Its name in the run file."""
    registered: Registered[SpecT]
    """Its spec and where it comes from."""
    settings: Settings
    """Its validated settings."""
    weight: float
    """Its weight among several."""

    @property
    def spec(self) -> SpecT:
        """What its plugin offered."""
        return self.registered.spec

    @property
    def plugin(self) -> str:
        """Who offered it."""
        return self.registered.plugin

    def choice(self) -> Choice:
        """The same for another process."""
        return Choice(self.spec.role, self.registered.qualified, self.plugin, self.settings)


class ChosenRoles(Mapping[str, tuple[Chosen, ...]]):
    """The choices of each role by the role's name, in order."""

    def __init__(self, choices: Mapping[str, tuple[Chosen, ...]]) -> None:
        self._choices = dict(choices)

    def __getitem__(self, role: str) -> tuple[Chosen, ...]:
        return self._choices[role]

    def __iter__(self) -> Iterator[str]:
        return iter(self._choices)

    def __len__(self) -> int:
        return len(self._choices)

    def all(self, spec: type[OneT]) -> tuple[Chosen[OneT], ...]:
        """The choices of the role that a spec is of."""
        # The catalog lets nobody register another spec for a role than the one of `roles.SPECS`.
        return cast(tuple[Chosen[OneT], ...], self._choices[spec.role])

    def one(self, spec: type[OneT]) -> Chosen[OneT]:
        """The single choice of a role that must have one."""
        return self.all(spec)[0]

    def maybe(self, spec: type[OneT]) -> Chosen[OneT] | None:
        """The single choice of a role that may have none."""
        return next(iter(self.all(spec)), None)
