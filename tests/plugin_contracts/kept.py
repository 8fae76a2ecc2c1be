"""A choice held to its contract without pytest's classes: one row of a table is one choice with its settings."""

from slime_testing import CheckStatus, Contract


def require_kept(contract: type[Contract], **attributes: object) -> None:
    """Fails with every check that the subject breaks, and where none was decided."""
    results = type("Subject", (contract,), attributes).report()
    assert [each for each in results if each.status is CheckStatus.FAILED] == []
    assert any(each.status is CheckStatus.PASSED for each in results)
