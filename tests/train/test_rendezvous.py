"""Rendezvous: ranks meet in a file, with any name that a folder can have."""

import os
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.rendezvous import rendezvous

from slime_core.roles import Rendezvous

NAMES = [
    "plain",
    "with a space",
    "50%20",
    "größe",
    "what?",
    "run#3",
    "new\nline",
    "re\rturn",
    "tab\t",
    " ends ",
    "'\"`$HOME\\",
    "[1];a:b@c&d=e",
    "日本\u2028\x1b[31m\x7f",
    os.fsdecode(b"not utf-8 \xff"),
    "n" * 255,
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_ranks_meet_in_the_file_that_is_meant(tmp_path: Path, name: str) -> None:
    place = tmp_path / name / "rendezvous"
    place.parent.mkdir()
    store, *_ = next(rendezvous(Rendezvous.file(place).url, rank=0, world_size=1))
    store.set("met", "here")
    assert b"here" in place.read_bytes()


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=60).filter(
        lambda name: name.strip(".")
    )
)
def test_a_url_is_read_as_the_path_that_was_meant(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    folder = tmp_path_factory.mktemp("any") / name
    folder.mkdir()
    (folder / "rendezvous").write_text(name, "utf-8", "surrogateescape", newline="")
    assert Path(urlsplit(Rendezvous.file(folder / "rendezvous").url).path).samefile(folder / "rendezvous")
