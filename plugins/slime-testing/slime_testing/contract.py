"""Contract: a class of numbered checks for a plugin's test class to inherit; pytest runs each check as a test.

Example:

    class TestMath(RewardContract):
        choice = "slime-reward-math/math"
        xfail = {"REW-009": "the verifier times out on 200 000 digits; reported upstream"}

`TestMath.report()` runs the checks without pytest. A check's number never changes; its docstring says why it exists and
how to fix a failure. Inherited checks cannot be replaced: list a known failure in `xfail` with its reason. A check
listed there fails once it passes, so the entry is removed when the bug is fixed.
"""

import asyncio
import contextlib
import enum
import functools
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, TypeVar
from unittest import SkipTest

from slime_core.errors import did_you_mean

ContractT = TypeVar("ContractT", bound="Contract")
ValueT = TypeVar("ValueT")
NOT_RUN = "not run: "
_OUTLIVED = ("Event loop is closed", "attached to a different loop", "bound to a different event loop")
"""asyncio's messages about an object that is used in another event loop than its own."""
_OTHERS = {*sys.stdlib_module_names, "slime_core", "slime_testing", "torch", "numpy", "pydantic", "pytest"}
"""Modules that error locations skip, to show the author's own lines."""


class CheckStatus(enum.Enum):
    """How a check ended."""

    PASSED = "passed"
    """The plugin passes."""
    FAILED = "failed"
    """The plugin fails, or passes although `xfail` lists the check."""
    SKIPPED = "skipped"
    """It does not apply; the detail gives the reason."""
    XFAILED = "xfailed"
    """The plugin fails, as `xfail` says."""


@dataclass(frozen=True, slots=True)
class CheckInfo:
    """Description of a check."""

    identity: str
    """Number of the check: "REW-003"."""
    needs: tuple[str, ...]
    """Numbers of checks that must pass first; if one fails, this check is skipped."""
    method: str
    """Name of the method."""
    advice: str
    """Why it exists, and how to fix a failure."""
    decisive: bool = False
    """Whether the headline of a report mentions it when it is skipped."""

    @property
    def title(self) -> str:
        """The method's name, in words."""
        return self.method.removeprefix("test_").replace("_", " ")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one check."""

    identity: str
    """Number of the check."""
    status: CheckStatus
    """Status of the check."""
    detail: str
    """The fault, or the reason for skipping; empty if it passed."""
    advice: str
    """Why it exists, and how to fix a failure."""


class ContractViolation(AssertionError):
    """Raised by a failed check; the message starts with its number and ends with its advice."""

    def __init__(self, info: CheckInfo, detail: str) -> None:
        super().__init__(f"{info.identity}: {detail}\n{info.advice}")
        self.detail = detail


def check(
    identity: str, *, needs: tuple[str, ...] = (), decisive: bool = False
) -> Callable[[Callable[[ContractT], None]], Callable[[ContractT], None]]:
    """Turn a method of a contract into a numbered check; each of its errors becomes a `ContractViolation`.

    Args:
        identity: the permanent number.
        needs: numbers of checks that must pass first.
        decisive: whether a report's headline mentions it when it is skipped.
    """

    def number(method: Callable[[ContractT], None]) -> Callable[[ContractT], None]:
        info = CheckInfo(identity, needs, method.__name__, inspect.cleandoc(method.__doc__ or ""), decisive)

        @functools.wraps(method)
        def numbered(self: ContractT) -> None:
            self._prepare()
            self._admit(info)
            try:
                method(self)
            except SkipTest as skip:  # also a skip for pytest, without importing it
                self._note(info, CheckStatus.SKIPPED, str(skip))
                raise
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                what = _told(error)
                self._note(info, CheckStatus.FAILED, what)
                raise ContractViolation(info, what) from error
            self._note(info, CheckStatus.PASSED, "")

        numbered.check = info  # type: ignore[attr-defined]  # function attribute that the kit collects
        return numbered

    return number


def _told(error: BaseException) -> str:
    told = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}{_at(error)}"
    if any(each in told for each in _OUTLIVED):
        told += (
            "\nWhat was kept, such as a client, a session or a lock, belongs to the event loop in which it was made: "
            "keep it in the object that the factory makes, not in its module, and make it in the first call"
        )
    return told


def _at(error: BaseException) -> str:
    frames = [(each.tb_frame.f_globals.get("__name__", ""), each) for each in _frames(error.__traceback__)]
    own = [each for name, each in frames if name.partition(".")[0] not in _OTHERS]
    return f" (at {own[-1].tb_frame.f_code.co_filename}:{own[-1].tb_lineno})" if own else ""


def _frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


class Contract:
    """Base of all contracts."""

    xfail: ClassVar[Mapping[str, str]] = {}
    """Known failures: the reason, by the number of the check."""
    automatic: ClassVar[bool] = False
    """Whether the kit runs it without an author; checks that need an author's settings are then skipped."""
    patience: ClassVar[float] = 1.0
    """Factor on the time limit of its checks in `slime plugins check`."""
    _noted: ClassVar[dict[str, CheckResult]] = {}

    def __init_subclass__(cls) -> None:
        """Refuse subclasses that weaken a contract.

        Raises:
            TypeError: the class replaces a check, or its `xfail` names an unknown check or has an empty reason.
        """
        super().__init_subclass__()
        cls._noted = {}
        for name in vars(cls):
            inherited = getattr(super(cls, cls), name, None)
            if info := getattr(inherited, "check", None):
                raise TypeError(
                    f"{cls.__name__}.{name} replaces check {info.identity}; checks are inherited as they are. "
                    f'One that is known to fail: xfail = {{"{info.identity}": "why"}}'
                )
        for identity, reason in cls.xfail.items():
            if identity not in cls.checks():
                hint = did_you_mean(identity, cls.checks())
                raise TypeError(f"{cls.__name__}.xfail: there is no check {identity!r}.{hint}")
            if not reason.strip():
                raise TypeError(f"{cls.__name__}.xfail: give a reason for {identity}")

    @classmethod
    def checks(cls) -> dict[str, CheckInfo]:
        """All checks by number, in order."""
        found = (getattr(getattr(cls, name), "check", None) for name in dir(cls) if name.startswith("test_"))
        return {info.identity: info for info in sorted(filter(None, found), key=lambda info: info.identity)}

    @classmethod
    def report(cls, *identities: str) -> tuple[CheckResult, ...]:
        """Run all checks without pytest, each on a fresh instance; or the given ones, and the checks that they need."""
        cls._noted.clear()
        try:
            return tuple(cls.result(identity) for identity in identities or cls.checks())
        finally:
            cls.teardown_class()

    @classmethod
    def result(cls, identity: str) -> CheckResult:
        """Run one check; a check that already ran for another one is not repeated.

        Raises:
            ValueError: no check has this number; the message names the nearest.
        """
        checks = cls.checks()
        if identity not in checks:
            raise ValueError(f"{cls.__name__}: there is no check {identity!r}.{did_you_mean(identity, checks)}")
        return cls._excused(cls._outcome(checks[identity]))

    def beyond(self) -> Collection[str]:
        """Numbers of checks that do not apply to this choice; `slime plugins check` leaves them out."""
        return ()

    @classmethod
    def teardown_class(cls) -> None:
        """Free resources shared by the checks; called after them by pytest and by `report`."""

    def own(self, name: str, value: ValueT | None) -> ValueT:
        """An attribute that only the author can set; skips the check if it is unset."""
        if value is not None:
            return value
        if self.automatic:
            raise SkipTest(f"needs the author's `{name}`: inherit {type(self).__bases__[0].__name__} and set it")
        raise AssertionError(f"set `{name}` on {type(self).__name__}")

    @classmethod
    def _outcome(cls, info: CheckInfo) -> CheckResult:
        if info.identity not in cls._noted:
            with contextlib.suppress(ContractViolation, SkipTest):  # it is noted
                getattr(cls(), info.method)()
        return cls._noted[info.identity]

    @classmethod
    def _note(cls, info: CheckInfo, status: CheckStatus, detail: str) -> None:
        cls._noted[info.identity] = CheckResult(info.identity, status, detail, info.advice)

    @classmethod
    def _excused(cls, found: CheckResult) -> CheckResult:
        reason = cls.xfail.get(found.identity)
        if reason is None or found.status is CheckStatus.SKIPPED:
            return found
        if found.status is CheckStatus.FAILED:
            status, detail = CheckStatus.XFAILED, f"{reason} ({found.detail})"
        else:
            status, detail = CheckStatus.FAILED, f"passes, yet xfail says: {reason}. Remove it from xfail"
        return CheckResult(found.identity, status, detail, found.advice)

    def _prepare(self) -> None:
        """Called before every check; contracts may override it."""

    def _admit(self, info: CheckInfo) -> None:
        why = ""
        for found in map(self.result, info.needs):
            if found.status is CheckStatus.FAILED:
                why = why or f"{NOT_RUN}{found.identity} failed"
            elif found.status is CheckStatus.SKIPPED and found.detail.startswith(NOT_RUN):
                why = why or found.detail
        if why:
            self._note(info, CheckStatus.SKIPPED, why)
            raise SkipTest(why)


def require(condition: object, message: str) -> None:
    """Fail the running check with this message if the condition is false.

    Raises:
        AssertionError: the condition is false.
    """
    if not condition:
        raise AssertionError(message)
