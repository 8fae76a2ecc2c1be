"""CheckContract: what every check of `slime doctor` must keep, CHK-001 to CHK-005.

Example:

    class TestDiskRoom(CheckContract):
        choice = "slime-doctor-disk/disk_room"
"""

import os
import time
from collections.abc import Callable
from typing import ClassVar, cast

from slime_core.roles import CheckSpec, Finding, Health
from slime_testing.calling import printed
from slime_testing.contract import check, require
from slime_testing.role import RoleContract, require_plain_def

PATIENCE_S = 2.0
"""How long a look may take."""


class CheckContract(RoleContract[CheckSpec]):
    """Inherit and name the check."""

    kind = CheckSpec
    choice: ClassVar[str | CheckSpec]
    """The check: a name for the catalog, or a spec."""

    @check("CHK-001")
    def test_the_factory_builds_a_check(self) -> None:
        """The core calls `check()`, a plain `def` without arguments."""
        require_plain_def(self.built())

    @check("CHK-002", needs=("CHK-001",))
    def test_it_answers_with_a_finding(self) -> None:
        """Return `Finding(health, text)`: one line that says what was looked at and what was found."""
        found: object = self._look()
        require(isinstance(found, Finding), f"expected a Finding, got {found!r:.80}")
        text = cast(Finding, found).text
        require(text.strip() and "\n" not in text, f"text must be one line, found {text!r}")

    @check("CHK-003", needs=("CHK-002",))
    def test_what_is_wrong_comes_with_advice(self) -> None:
        """A warning or an error without something to type leaves the user alone: set `advice`, or `fix`."""
        found = self._look()
        helpful = found.health is Health.OK or found.advice or found.fix
        require(helpful, f"it found {found.health.value!r}, and does not say what to do")

    @check("CHK-004", needs=("CHK-002",))
    def test_looking_changes_nothing(self) -> None:
        """`slime doctor` only looks: what mends belongs in `fix`, which is called after the user agreed."""
        before, here = dict(os.environ), os.getcwd()  # noqa: PTH109  # compared, not used
        first, second = self._look(), self._look()
        require(first.health is second.health, f"it found {first.health.value}, then {second.health.value}")
        require(os.environ == before and os.getcwd() == here, "it changed the environment")  # noqa: PTH109

    @check("CHK-005", needs=("CHK-002",))
    def test_it_is_quick_and_silent(self) -> None:
        """`slime doctor` runs every check that is installed: look at little, and print nothing."""
        shortest = float("inf")
        for _ in range(2):  # a busy machine is not the check's fault
            started = time.perf_counter()
            self._look()
            shortest = min(shortest, time.perf_counter() - started)
        require(shortest < PATIENCE_S, f"it took {shortest:.1f} s")

        async def act() -> object:
            return self._look()

        text = printed(act)
        require(not text, f"it printed {text[:80]!r}")

    def _look(self) -> Finding:
        return cast(Callable[[], Finding], self.built())()
