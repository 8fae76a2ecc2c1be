"""Contract: a class of numbered checks that a plugin's test class inherits; pytest runs each as a test.

Example:

    class TestMath(RewardContract):
        choice = "slime-reward-math/math"
        xfail = {"REW-009": "the verifier gives up on 200 000 digits; reported upstream"}

`TestMath.report()` runs them without pytest. A check's number stays the same in every version; its docstring says why
it is there and how to fix what it finds. What is inherited is never replaced: a failure that is known is named in
`xfail` with its reason, and a check named there that passes is a failure, so that no excuse outlives its bug.
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
"""What asyncio says of a thing that is used in another loop than its own."""
_OTHERS = {*sys.stdlib_module_names, "slime_core", "slime_testing", "torch", "numpy", "pydantic", "pytest"}
"""Modules in whose lines an author does not look for a mistake."""


class CheckStatus(enum.Enum):
    """How a check ended."""

    PASSED = "passed"
    """The plugin keeps it."""
    FAILED = "failed"
    """The plugin breaks it; or it keeps what `xfail` says that it breaks."""
    SKIPPED = "skipped"
    """It does not apply; the detail says why."""
    XFAILED = "xfailed"
    """The plugin breaks it, and says so in `xfail`."""


@dataclass(frozen=True, slots=True)
class CheckInfo:
    """A check, without what it does."""

    identity: str
    """Its number: "REW-003"."""
    needs: tuple[str, ...]
    """Checks without which it says nothing: where one of them fails, it is skipped."""
    method: str
    """Name of its method."""
    advice: str
    """Why it is there, and how to fix what it finds."""
    decisive: bool = False
    """Whether a report without it says little: where it is skipped, the headline says so."""

    @property
    def title(self) -> str:
        """What it checks, in words."""
        return self.method.removeprefix("test_").replace("_", " ")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found."""

    identity: str
    """Its number."""
    status: CheckStatus
    """How it ended."""
    detail: str
    """What is wrong, or why it was skipped; empty when it passed."""
    advice: str
    """Why it is there, and how to fix what it finds."""


class ContractViolation(AssertionError):
    """A check failed; the text starts with its number and ends with its advice."""

    def __init__(self, info: CheckInfo, detail: str) -> None:
        super().__init__(f"{info.identity}: {detail}\n{info.advice}")
        self.detail = detail


def check(
    identity: str, *, needs: tuple[str, ...] = (), decisive: bool = False
) -> Callable[[Callable[[ContractT], None]], Callable[[ContractT], None]]:
    """Give a method of a contract its number; whatever it raises becomes a `ContractViolation`.

    Args:
        identity: the number, for good.
        needs: numbers of the checks without which it says nothing.
        decisive: whether the headline of a report tells when it was skipped.
    """

    def number(method: Callable[[ContractT], None]) -> Callable[[ContractT], None]:
        info = CheckInfo(identity, needs, method.__name__, inspect.cleandoc(method.__doc__ or ""), decisive)

        @functools.wraps(method)
        def numbered(self: ContractT) -> None:
            self._prepare()
            self._admit(info)
            try:
                method(self)
            except SkipTest as skip:  # pytest takes it for a skip, and it needs no pytest
                self._note(info, CheckStatus.SKIPPED, str(skip))
                raise
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                what = _told(error)
                self._note(info, CheckStatus.FAILED, what)
                raise ContractViolation(info, what) from error
            self._note(info, CheckStatus.PASSED, "")

        numbered.check = info  # type: ignore[attr-defined]  # an attribute of a function, which the kit collects
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
    """Reason by number of each check that the plugin is known to break."""
    automatic: ClassVar[bool] = False
    """Whether the kit runs it on its own: checks of what only an author can tell are then skipped, and say so."""
    patience: ClassVar[float] = 1.0
    """How many times as long as others its checks may take before `slime plugins check` ends them."""
    _noted: ClassVar[dict[str, CheckResult]] = {}

    def __init_subclass__(cls) -> None:
        """Refuse to weaken a contract.

        Raises:
            TypeError: the class replaces a check, or excuses one that does not exist or for no reason.
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
        """Every check by number, in order."""
        found = (getattr(getattr(cls, name), "check", None) for name in dir(cls) if name.startswith("test_"))
        return {info.identity: info for info in sorted(filter(None, found), key=lambda info: info.identity)}

    @classmethod
    def report(cls, *identities: str) -> tuple[CheckResult, ...]:
        """Run every check on a fresh instance, without pytest; or those with these numbers, and what they need."""
        cls._noted.clear()
        try:
            return tuple(cls.result(identity) for identity in identities or cls.checks())
        finally:
            cls.teardown_class()

    @classmethod
    def result(cls, identity: str) -> CheckResult:
        """Run one check, unless another one has run it already because it needs it.

        Raises:
            ValueError: no check has this number; names the nearest.
        """
        checks = cls.checks()
        if identity not in checks:
            raise ValueError(f"{cls.__name__}: there is no check {identity!r}.{did_you_mean(identity, checks)}")
        return cls._excused(cls._outcome(checks[identity]))

    def beyond(self) -> Collection[str]:
        """Numbers of checks of what a choice of its kind does not have; `slime plugins check` leaves them out."""
        return ()

    @classmethod
    def teardown_class(cls) -> None:
        """Free what the checks shared; pytest calls it after them, and so does `report`."""

    def own(self, name: str, value: ValueT | None) -> ValueT:
        """An attribute that only the author can set; skips the check where there is no author."""
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
        """Runs before every check; a contract may override it."""

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
    """Fail the running check with a message unless the condition holds.

    Raises:
        AssertionError: it does not hold.
    """
    if not condition:
        raise AssertionError(message)
