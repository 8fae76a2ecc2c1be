"""Contract: a class of numbered checks for a plugin's test class to inherit; pytest runs each check as a test.

Example:

    class TestMath(RewardContract):
        choice = "slime-reward-math/math"
        xfail = {"REW-009": "the verifier times out on 200 000 digits; reported upstream"}

`TestMath.report()` runs the checks without pytest. A check's number never changes. Its name says what is tested, and
its docstring says how to fix a failure. A subclass cannot replace a check: list a known failure in `xfail` with its
reason. A listed check fails once it passes, so that the entry is removed when the bug is fixed.
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
_WRONG_LOOP_ERRORS = ("Event loop is closed", "attached to a different loop", "bound to a different event loop")
"""asyncio's messages about an object that is used outside its event loop."""
_LIBRARIES = {*sys.stdlib_module_names, "slime_core", "slime_testing", "torch", "numpy", "pydantic", "pytest"}
"""Modules that error locations skip, to show the plugin author's lines."""


class CheckStatus(enum.Enum):
    """How a check ended."""

    PASSED = "passed"
    """The plugin passed the check."""
    FAILED = "failed"
    """The plugin failed the check, or passed although `xfail` lists it."""
    SKIPPED = "skipped"
    """The check does not apply; the detail gives the reason."""
    XFAILED = "xfailed"
    """The plugin failed the check, and `xfail` lists it."""


@dataclass(frozen=True, slots=True)
class CheckInfo:
    """Description of a check."""

    identity: str
    """Number of the check: "REW-003"."""
    needs: tuple[str, ...]
    """Numbers of checks that must pass first; if one fails, this check is skipped."""
    method: str
    """Name of the test method."""
    advice: str
    """What a plugin must do, why, and how to fix a failure."""
    decisive: bool = False
    """Whether the headline of a report mentions the check when it is skipped."""

    @property
    def title(self) -> str:
        """The method's name, as words."""
        return self.method.removeprefix("test_").replace("_", " ")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one check."""

    identity: str
    """Number of the check."""
    status: CheckStatus
    """How the check ended."""
    detail: str
    """The error, or the reason for skipping; empty if the check passed."""
    advice: str
    """How to fix a failure: `CheckInfo.advice`."""


class ContractViolation(AssertionError):
    """Raised by a failed check; the message starts with its number and ends with its advice."""

    def __init__(self, info: CheckInfo, detail: str) -> None:
        super().__init__(f"{info.identity}: {detail}\n{info.advice}")
        self.detail = detail


def check(
    identity: str, *, needs: tuple[str, ...] = (), decisive: bool = False
) -> Callable[[Callable[[ContractT], None]], Callable[[ContractT], None]]:
    """Turn a method of a contract into a numbered check. Errors in it become a `ContractViolation`.

    Args:
        identity: the permanent number.
        needs: numbers of checks that must pass first.
        decisive: whether a report's headline mentions the check when it is skipped.
    """

    def number(method: Callable[[ContractT], None]) -> Callable[[ContractT], None]:
        info = CheckInfo(identity, needs, method.__name__, inspect.cleandoc(method.__doc__ or ""), decisive)

        @functools.wraps(method)
        def numbered(self: ContractT) -> None:
            self._prepare()
            self._check_needs(info)
            try:
                method(self)
            except SkipTest as skip:  # also a skip for pytest, without importing it
                self._record(info, CheckStatus.SKIPPED, str(skip))
                raise
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                detail = _error_text(error)
                self._record(info, CheckStatus.FAILED, detail)
                raise ContractViolation(info, detail) from error
            self._record(info, CheckStatus.PASSED, "")

        numbered.check = info  # type: ignore[attr-defined]  # function attribute that the kit collects
        return numbered

    return number


def _error_text(error: BaseException) -> str:
    text = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}{_location(error)}"
    if any(message in text for message in _WRONG_LOOP_ERRORS):
        text += (
            "\nA client, session or lock belongs to the event loop that created it. Store it in the object that the "
            "factory returns, not in the module, and create it in the first call."
        )
    return text


def _location(error: BaseException) -> str:
    frames = [(each.tb_frame.f_globals.get("__name__", ""), each) for each in _frames(error.__traceback__)]
    own = [each for name, each in frames if name.partition(".")[0] not in _LIBRARIES]
    return f" (at {own[-1].tb_frame.f_code.co_filename}:{own[-1].tb_lineno})" if own else ""


def _frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


class Contract:
    """Base of all contracts."""

    xfail: ClassVar[Mapping[str, str]] = {}
    """Known failures: number of the check to reason."""
    automatic: ClassVar[bool] = False
    """Whether `slime plugins check` created this class. It then skips checks that need attributes from the author."""
    patience: ClassVar[float] = 1.0
    """Factor on the time limits of its checks in `slime plugins check`; set it above 1 for slow plugins."""
    _results: ClassVar[dict[str, CheckResult]] = {}

    def __init_subclass__(cls) -> None:
        """Refuse subclasses that weaken a contract.

        Raises:
            TypeError: the class replaces a check, or its `xfail` names an unknown check or has an empty reason.
        """
        super().__init_subclass__()
        cls._results = {}
        for name in vars(cls):
            inherited = getattr(super(cls, cls), name, None)
            if info := getattr(inherited, "check", None):
                raise TypeError(
                    f"{cls.__name__}.{name} replaces check {info.identity}. A contract cannot replace a check. "
                    f'If the plugin is known to fail it, write xfail = {{"{info.identity}": "the reason"}}.'
                )
        for identity, reason in cls.xfail.items():
            if identity not in cls.checks():
                hint = did_you_mean(identity, cls.checks())
                raise TypeError(f"{cls.__name__}.xfail: there is no check {identity!r}.{hint}")
            if not reason.strip():
                raise TypeError(f"{cls.__name__}.xfail: the reason for {identity} is empty. Write why the check fails.")

    @classmethod
    def checks(cls) -> dict[str, CheckInfo]:
        """All checks by number, in order."""
        found = (getattr(getattr(cls, name), "check", None) for name in dir(cls) if name.startswith("test_"))
        return {info.identity: info for info in sorted(filter(None, found), key=lambda info: info.identity)}

    @classmethod
    def report(cls, *identities: str) -> tuple[CheckResult, ...]:
        """Run checks without pytest, each on a fresh instance: all, or the given ones and the ones that they need."""
        cls._results.clear()
        try:
            return tuple(cls.result(identity) for identity in identities or cls.checks())
        finally:
            cls.teardown_class()

    @classmethod
    def result(cls, identity: str) -> CheckResult:
        """Result of one check. A check that already ran because another one needs it is not repeated.

        Raises:
            ValueError: no check has this number; the message suggests the closest one.
        """
        checks = cls.checks()
        if identity not in checks:
            raise ValueError(f"{cls.__name__}: there is no check {identity!r}.{did_you_mean(identity, checks)}")
        return cls._apply_xfail(cls._run_once(checks[identity]))

    def inapplicable(self) -> Collection[str]:
        """Numbers of checks that do not apply to this choice; `slime plugins check` omits them."""
        return ()

    @classmethod
    def teardown_class(cls) -> None:
        """Free resources that the checks share. pytest and `report` call it after the last check."""

    def author_value(self, name: str, value: ValueT | None) -> ValueT:
        """Value of an attribute that only the plugin author can set; skips the check if it is None."""
        if value is not None:
            return value
        if self.automatic:
            raise SkipTest(f"needs the author's `{name}`: inherit {type(self).__bases__[0].__name__} and set it")
        raise AssertionError(f"{type(self).__name__} needs `{name}`, which is not set. Set it in the class.")

    @classmethod
    def _run_once(cls, info: CheckInfo) -> CheckResult:
        if info.identity not in cls._results:
            with contextlib.suppress(ContractViolation, SkipTest):  # it is noted
                getattr(cls(), info.method)()
        return cls._results[info.identity]

    @classmethod
    def _record(cls, info: CheckInfo, status: CheckStatus, detail: str) -> None:
        cls._results[info.identity] = CheckResult(info.identity, status, detail, info.advice)

    @classmethod
    def _apply_xfail(cls, found: CheckResult) -> CheckResult:
        reason = cls.xfail.get(found.identity)
        if reason is None or found.status is CheckStatus.SKIPPED:
            return found
        if found.status is CheckStatus.FAILED:
            status, detail = CheckStatus.XFAILED, f"{reason} ({found.detail})"
        else:
            status, detail = CheckStatus.FAILED, f"the check passes, but xfail lists it: {reason}. Remove it from xfail"
        return CheckResult(found.identity, status, detail, found.advice)

    def _prepare(self) -> None:
        """Called before every check; contracts may override it."""

    def _check_needs(self, info: CheckInfo) -> None:
        reason = ""
        for found in map(self.result, info.needs):
            if found.status is CheckStatus.FAILED:
                reason = reason or f"{NOT_RUN}{found.identity} failed"
            elif found.status is CheckStatus.SKIPPED and found.detail.startswith(NOT_RUN):
                reason = reason or found.detail
        if reason:
            self._record(info, CheckStatus.SKIPPED, reason)
            raise SkipTest(reason)


def require(condition: object, message: str) -> None:
    """Fail the running check with this message if the condition is false.

    Raises:
        AssertionError: the condition is false.
    """
    if not condition:
        raise AssertionError(message)
