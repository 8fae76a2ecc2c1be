import unittest

import pytest

from slime_core.testing import CheckResult, Contract, ContractViolation
from slime_core.testing.contract import check, require


class Sound(Contract):
    value = 1

    @check("TST-002")
    def test_positive(self) -> None:
        """Use a positive value."""
        require(self.value > 0, f"value is {self.value}")

    @check("TST-001")
    def test_small(self) -> None:
        """Use a small value."""
        if self.value == 0:
            raise unittest.SkipTest("nothing to see")
        require(10 // self.value, f"value is {self.value}")


def test_checks_are_listed_by_number() -> None:
    assert Sound.checks() == {"TST-001": "test_small", "TST-002": "test_positive"}


def test_a_failure_says_its_number_and_how_to_fix_it() -> None:
    class Negative(Sound):
        value = -1

    with pytest.raises(ContractViolation, match=r"^TST-002: value is -1\nUse a positive value\.$"):
        Negative().test_positive()


def test_what_a_plugin_raises_is_a_failure_of_the_check() -> None:
    class Text(Sound):
        value = "1"  # type: ignore[assignment]

    first = Text.report()[0]
    assert first.detail.startswith("TST-001: TypeError: unsupported operand")


def test_the_report_needs_no_pytest() -> None:
    class Zero(Sound):
        value = 0

    skipped = CheckResult("TST-001", passed=True, detail="nothing to see")
    failed = CheckResult("TST-002", passed=False, detail="TST-002: value is 0\nUse a positive value.")
    assert Zero.report() == (skipped, failed)


def test_a_check_is_not_replaced() -> None:
    with pytest.raises(TypeError, match=r"Weak\.test_positive replaces check TST-002"):

        class Weak(Sound):
            def test_positive(self) -> None:
                pass
