"""Models beside the checkpoints: as many as were saved, each a model directory, linked while its checkpoint stays."""

from pathlib import Path

import pytest

from slime_core.errors import RunFolderError
from slime_core.run import Checkpoint
from slime_core.run.checkpoint import copy_model
from tests.conftest import Project, Slime


def test_a_run_keeps_the_model_of_each_save_though_checkpoints_go(project: Project, slime: Slime) -> None:
    project.write_run(num_rollout=2, save_interval=1, save_keep=1, save_hf="models/after_{rollout_id}", lr=1e-3)
    slime.ok("train", "run.toml")
    models = project.root / "models"
    assert sorted(path.name for path in models.iterdir()) == [f"after_{number}" for number in range(1, 3)]
    (checkpoint,) = (project.run / "checkpoints").iterdir()
    for file in (checkpoint / "hf").iterdir():
        assert (models / "after_2" / file.name).samefile(file), "linked, not copied"
    weights = [(path / "model.safetensors").read_bytes() for path in sorted(models.iterdir())]
    assert len(set(weights)) == 2
    assert slime("plan", "run.toml", "--hf-checkpoint", models / "after_1").code == 0


def test_what_cannot_be_written_is_said_and_leaves_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "a_file").write_text("")
    (tmp_path / "checkpoint" / "hf").mkdir(parents=True)
    with pytest.raises(RunFolderError, match=r"cannot write save_hf .*a_file.*checkpoint has the model"):
        copy_model(Checkpoint(tmp_path / "checkpoint", 3), str(tmp_path / "a_file" / "model"), "a1")


def model_of(root: Path, number: int, **files: str) -> Checkpoint:
    hf = root / f"checkpoint_{number}" / "hf"
    hf.mkdir(parents=True)
    for name, text in {"config.json": f'{{"number": {number}}}', **files}.items():
        (hf / name).write_text(text)
    return Checkpoint(hf.parent, number)


@pytest.mark.parametrize("other", ["notes", "of another run"])
def test_a_directory_that_came_while_the_run_went_on_is_left_alone(tmp_path: Path, other: str) -> None:
    if other == "notes":
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "config.json").write_text("mine")
    else:
        copy_model(model_of(tmp_path, 1), str(tmp_path / "model"), "b2")
    before = (tmp_path / "model" / "config.json").read_text()
    with pytest.raises(RunFolderError, match=r"this run did not make it.*checkpoint_2 has the model"):
        copy_model(model_of(tmp_path, 2), str(tmp_path / "model"), "a1")
    assert (tmp_path / "model" / "config.json").read_text() == before


def test_a_copy_replaces_the_one_before_and_nothing_beside_it(tmp_path: Path) -> None:
    """Also through a link."""
    (tmp_path / "model").symlink_to("real")
    for name in ("real.old", ".real.tmp", ".real.old", ".real.x"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.txt").write_text("mine")
    killed = tmp_path / ".real.a1.tmp.old.tmp"  # while the copy before was being removed
    killed.mkdir()
    (killed / "config.json").write_text("old")
    for number in (1, 2, 3):
        copy_model(model_of(tmp_path, number), str(tmp_path / "model"), "a1")
    assert len([*tmp_path.rglob("mine.txt")]) == 4
    assert not killed.exists()
    assert (tmp_path / "model").is_symlink()
    assert (tmp_path / "real" / "config.json").read_text() == '{"number": 3}'
