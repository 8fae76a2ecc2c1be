"""Where slime-core came from, as pip recorded it, for the `slime.txt` of a new plugin."""

import importlib.metadata
import json
from collections.abc import Callable

import pytest

from slime_testing.scaffold import constraints, keep_core_arguments
from tests.tables import table

Told = Callable[[object], None]
WHEEL = "https://example.org/v0.1.0/slime_core-0.1.0-py3-none-any.whl"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Have slime-core alone be installed, with this record of pip's."""

    class Installed(importlib.metadata.PathDistribution):
        version = "0.1.0"

        def __init__(self, record: object) -> None:
            self.record = record

        def read_text(self, filename: str) -> str | None:
            return json.dumps(self.record) if self.record and filename == "direct_url.json" else None

    def tell(record: object) -> None:
        def distribution(name: str) -> Installed:
            if name != "slime-core":
                raise importlib.metadata.PackageNotFoundError
            return Installed(record)

        monkeypatch.setattr("slime_testing.scaffold.distribution", distribution)

    return tell


@table(
    "record, line, install",
    [
        (
            {"url": WHEEL, "archive_info": {"hashes": {"sha256": "0a"}}},
            f"slime-core @ {WHEEL}#sha256=0a",
            "-c slime.txt",
        ),
        ({"url": WHEEL, "archive_info": {}}, f"slime-core @ {WHEEL}", "-c slime.txt"),
        (
            {"url": "https://example.org/x", "vcs_info": {"vcs": "git", "commit_id": "12ab"}},
            "slime-core @ git+https://example.org/x@12ab",
            "-c slime.txt",
        ),
        ({"url": "file:///a%20b", "dir_info": {}}, "slime-core @ file:///a%20b", "-c slime.txt"),
        ({"url": "file:///a%20b", "dir_info": {"editable": True}}, "slime-core @ file:///a%20b", "-e '/a b'"),
    ],
)
def test_it_is_an_address_and_the_line_to_type_keeps_what_is_installed(
    told: Told, record: object, line: str, install: str
) -> None:
    told(record)
    assert constraints() == f"{line}\n"
    assert keep_core_arguments() == install


def test_where_it_is_not_known_no_index_is_asked_either(told: Told) -> None:
    told(None)
    comment, line = constraints().splitlines()
    assert comment.startswith("# Replace this URL by the origin of slime-core 0.1.0")
    assert line.startswith("slime-core @ https://address.invalid/"), (
        "a name that is kept from ever being one (RFC 2606)"
    )
    assert keep_core_arguments() == "slime-core==0.1.0"
