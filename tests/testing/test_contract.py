import unittest

import pytest

from slime_testing import CheckResult, CheckStatus, Contract, ContractViolation
from slime_testing.contract import check, require
from tests.tables import table

PASSED, FAILED, SKIPPED, XFAILED = CheckStatus


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

    @check("TST-003", needs=("TST-002",))
    def test_square(self) -> None:
        """Use a square."""
        require(self.value == 1, f"value is {self.value}")


def statuses(contract: type[Contract]) -> list[CheckStatus]:
    return [result.status for result in contract.report()]


def details(contract: type[Contract]) -> dict[str, str]:
    return {result.identity: result.detail for result in contract.report()}


def test_checks_are_listed_by_number() -> None:
    assert list(Sound.checks()) == ["TST-001", "TST-002", "TST-003"]
    info = Sound.checks()["TST-001"]
    assert (info.method, info.title, info.advice) == ("test_small", "small", "Use a small value.")


def test_a_number_that_no_check_has_is_named_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"Sound: there is no check 'TST-03'\. Did you mean 'TST-003'"):
        Sound.report("TST-03")


def test_a_failure_says_its_number_and_how_to_fix_it() -> None:
    class Negative(Sound):
        value = -1

    with pytest.raises(ContractViolation, match=r"^TST-002: value is -1\nUse a positive value\.$"):
        Negative().test_positive()


@table("error", [SystemExit(3), RuntimeError("no")])
def test_a_plugin_that_exits_does_not_end_the_report(error: BaseException) -> None:
    class Exits(Contract):
        @check("TST-001")
        def test_it(self) -> None:
            """Stay."""
            raise error

    assert statuses(Exits) == [FAILED]


def test_the_report_needs_no_pytest() -> None:
    class Zero(Sound):
        value = 0

    assert Zero.report() == (
        CheckResult("TST-001", SKIPPED, "nothing to see", "Use a small value."),
        CheckResult("TST-002", FAILED, "value is 0", "Use a positive value."),
        CheckResult("TST-003", SKIPPED, "not run: TST-002 failed", "Use a square."),
    )


def test_a_check_is_not_replaced() -> None:
    with pytest.raises(
        TypeError, match=r"Weak\.test_positive replaces check TST-002.*xfail = {\"TST-002\": \"the reason\"}"
    ):

        class Weak(Sound):
            def test_positive(self) -> None:
                pass


def test_a_known_failure_is_excused_by_its_reason() -> None:
    class Excused(Sound):
        value = -1
        xfail = {"TST-002": "values are negative here"}  # noqa: RUF012

    results = {result.identity: result for result in Excused.report()}
    assert (results["TST-002"].status, results["TST-003"].status) == (XFAILED, FAILED)
    assert results["TST-002"].detail == "values are negative here (value is -1)"


def test_an_excuse_that_is_no_longer_needed_is_a_failure() -> None:
    class Stale(Sound):
        xfail = {"TST-002": "values are negative here"}  # noqa: RUF012

    assert (
        details(Stale)["TST-002"]
        == "the check passes, but xfail lists it: values are negative here. Remove it from xfail"
    )
    assert statuses(Stale)[1] is FAILED


@table(
    "excuses, message",
    [
        ({"TST-020": "why"}, "there is no check 'TST-020'. Did you mean 'TST-00"),
        ({"TST-002": " "}, "the reason for TST-002 is empty"),
    ],
)
def test_an_excuse_names_a_check_and_a_reason(excuses: dict[str, str], message: str) -> None:
    with pytest.raises(TypeError) as error:
        type("Excused", (Sound,), {"xfail": excuses})
    assert message in str(error.value)


def test_what_only_the_author_can_tell_is_skipped_without_one() -> None:
    class Asks(Contract):
        answer: int | None = None

        @check("TST-001")
        def test_it(self) -> None:
            """Set it."""
            require(self.author_value("answer", self.answer) == 42, "another answer")

    class Alone(Asks):
        automatic = True

    class Answered(Asks):
        answer = 42

    assert details(Asks) == {"TST-001": "Asks needs `answer`, which is not set. Set it in the class."}
    assert details(Alone) == {"TST-001": "needs the author's `answer`: inherit Asks and set it"}
    assert statuses(Alone) + statuses(Answered) == [SKIPPED, PASSED]
