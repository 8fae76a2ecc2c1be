"""Contract: a class of numbered checks that a plugin's test class inherits.

    class TestMath(RewardContract):
        choice = "slime-reward-math/math"

pytest runs every check as a test. `TestMath.report()` runs them without pytest. A check's number stays the same in
every version; its docstring says why it is there and how to fix what it finds, and is part of the failure's text.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar
from unittest import SkipTest

from slime_core.catalog import Catalog
from slime_core.roles import Setup, Spec

ContractT = TypeVar("ContractT", bound="Contract")
SpecT = TypeVar("SpecT", bound=Spec[object])


class ContractViolation(AssertionError):
    """A check failed; the text starts with its number."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found."""

    identity: str
    """Its number: "REW-003"."""
    passed: bool
    """Whether the plugin keeps it; also true of what does not apply."""
    detail: str
    """What is wrong, or why it does not apply; empty when it passed."""


def check(identity: str) -> Callable[[Callable[[ContractT], None]], Callable[[ContractT], None]]:
    """Give a method of a contract its number; whatever it raises becomes a `ContractViolation`."""

    def number(method: Callable[[ContractT], None]) -> Callable[[ContractT], None]:
        advice = inspect.cleandoc(method.__doc__ or "")

        @functools.wraps(method)
        def numbered(self: ContractT) -> None:
            try:
                method(self)
            except SkipTest:  # pytest takes it for a skip, and it needs no pytest
                raise
            except Exception as error:
                what = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
                raise ContractViolation(f"{identity}: {what}\n{advice}") from error

        numbered.identity = identity  # type: ignore[attr-defined]
        return numbered

    return number


class Contract:
    """Base of all contracts."""

    def __init_subclass__(cls) -> None:
        """Refuse to weaken a contract: what is inherited with a number is not replaced.

        Raises:
            TypeError: the class overrides a check.
        """
        for name in vars(cls):
            inherited = getattr(super(cls, cls), name, None)
            if identity := getattr(inherited, "identity", None):
                raise TypeError(f"{cls.__name__}.{name} replaces check {identity}; checks are inherited as they are")

    @classmethod
    def checks(cls) -> dict[str, str]:
        """Method name of each check by number, in order."""
        found = ((getattr(getattr(cls, name), "identity", None), name) for name in dir(cls))
        return dict(sorted((identity, name) for identity, name in found if identity))

    @classmethod
    def report(cls) -> tuple[CheckResult, ...]:
        """Run every check on a fresh instance, without pytest."""
        return tuple(cls._result(identity, name) for identity, name in cls.checks().items())

    @classmethod
    def _result(cls, identity: str, name: str) -> CheckResult:
        try:
            getattr(cls(), name)()
        except ContractViolation as violation:
            return CheckResult(identity, passed=False, detail=str(violation))
        except SkipTest as skipped:
            return CheckResult(identity, passed=True, detail=str(skipped))
        return CheckResult(identity, passed=True, detail="")


def require(condition: object, message: str) -> None:
    """Fail the running check with a message unless the condition holds.

    Raises:
        AssertionError: it does not hold.
    """
    if not condition:
        raise AssertionError(message)


def find_spec(kind: type[SpecT], choice: "str | SpecT") -> SpecT:
    """The spec that a contract's `choice` means: itself, or what the catalog finds by that name."""
    spec = Catalog.discover().find(kind.role, choice).spec if isinstance(choice, str) else choice
    require(isinstance(spec, kind), f"choice is a {type(spec).__name__}; expected a {kind.__name__}")
    return spec  # type: ignore[return-value]


def make(role: str, name: str, **settings: object) -> object:
    """Build another choice, as `Setup.make` does in a run."""
    spec = Catalog.discover().find(role, name).spec
    return spec.factory(spec.settings.model_validate(settings), Setup(make, seed=1))
