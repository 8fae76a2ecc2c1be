"""The functions written for slime are a module of the project, as a user's are."""

from pathlib import Path

import pytest


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the functions are, in slime's dotted form."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return "written_for_slime."
