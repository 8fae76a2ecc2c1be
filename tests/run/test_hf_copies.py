"""Models beside the checkpoints: as many as were saved, each a model directory, linked while its checkpoint stays."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime_core.errors import RunFolderError
from slime_core.run.checkpoint import Checkpoint
from slime_core.run.hf_copies import HfCopies

Slime = Callable[..., Any]
Project = Any


def test_a_run_keeps_the_model_of_each_save_though_checkpoints_go(project: Project, slime: Slime) -> None:
    project.write_run(num_rollout=4, save_interval=1, save_keep=1, save_hf="models/after_{rollout_id}", lr=1e-3)
    ran = slime("train", "run.toml")
    assert ran.code == 0, ran.err
    models = project.root / "models"
    assert sorted(path.name for path in models.iterdir()) == [f"after_{number}" for number in range(1, 5)]
    (checkpoint,) = (project.run / "checkpoints").iterdir()
    for file in (checkpoint / "hf").iterdir():
        assert (models / "after_4" / file.name).samefile(file), "linked, not copied"
    weights = [(path / "model.safetensors").read_bytes() for path in sorted(models.iterdir())]
    assert len(set(weights)) == 4
    assert slime("plan", "run.toml", "--hf-checkpoint", models / "after_2").code == 0


def test_without_a_number_the_newest_replaces_the_one_before(tmp_path: Path) -> None:
    copies = HfCopies(str(tmp_path / "model"))
    for number in (0, 1, 2):
        hf = tmp_path / f"checkpoint_{number}" / "hf"
        hf.mkdir(parents=True)
        (hf / "config.json").write_text(f'{{"number": {number}}}')
        copies.keep(Checkpoint(hf.parent, number))
    assert (tmp_path / "model" / "config.json").read_text() == '{"number": 2}'
    assert sorted(path.name for path in tmp_path.iterdir() if "checkpoint" not in path.name) == ["model"]


def test_what_cannot_be_written_is_said_and_leaves_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "a_file").write_text("")
    (tmp_path / "checkpoint" / "hf").mkdir(parents=True)
    with pytest.raises(RunFolderError, match=r"cannot write save_hf .*a_file.*checkpoint has the model"):
        HfCopies(str(tmp_path / "a_file" / "model")).keep(Checkpoint(tmp_path / "checkpoint", 3))
