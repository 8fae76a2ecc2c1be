"""RecordFile: what was appended is read back, in any order; a full disk is named."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.data.prompt_table import RecordFile
from slime_core.errors import DataError


@given(records=st.lists(st.binary(min_size=1), max_size=20))
def test_what_was_written_is_read(records: list[bytes]) -> None:
    kept = RecordFile(records)
    assert len(kept) == len(records)
    assert [kept[number] for number in reversed(range(len(kept)))] == records[::-1]


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    says = r"do not fit into the temporary directory .*No space left.*set TMPDIR"
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda prefix: full)
        with pytest.raises(DataError, match=says):
            RecordFile([b"x"])
