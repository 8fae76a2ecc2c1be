"""Rendezvous: ranks meet in a file, whatever its folder is called."""

from pathlib import Path

import pytest
from torch.distributed.rendezvous import rendezvous

from slime_core.errors import ConfigError
from slime_core.roles import Rendezvous


@pytest.mark.parametrize("name", ["plain", "with a space", "50%20", "größe"])
def test_ranks_meet_in_the_file_that_is_meant(tmp_path: Path, name: str) -> None:
    place = tmp_path / name / "rendezvous"
    place.parent.mkdir()
    store, *_ = next(rendezvous(Rendezvous.file(place).url, rank=0, world_size=1))
    store.set("met", "here")
    assert b"here" in place.read_bytes()


@pytest.mark.parametrize("name", ["what?", "run#3"])
def test_a_path_that_torch_would_cut_off_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"its path has '[?#]'; choose a folder without"):
        Rendezvous.file(tmp_path / name / "rendezvous")
