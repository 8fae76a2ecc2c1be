"""A run folder may have any name that the file system takes."""

import pytest

from slime_core.run import list_checkpoints
from tests.conftest import Project, Slime

NAME = "new\nline\tand\r 50%20 {rollout_id} what?#'\"`$HOME\\ [a]* größe日\u2028\x1b[31m"


@pytest.mark.filterwarnings("ignore:Glyph")  # the plot's font has not every letter of the title
def test_two_ranks_train_and_continue_in_a_folder_with_a_hostile_name(project: Project, slime: Slime) -> None:
    project.write_run(num_rollout=1, save_interval=1, trainer={"local": {"ranks": 2}})
    folder = project.root / NAME
    slime.ok("train", "run.toml", "--save", folder)
    slime.ok("resume", folder, "--num-rollout", 2)
    assert [each.name for each in list_checkpoints(folder / "checkpoints")] == ["rollout_000001", "rollout_000002"]
    for command in ("checkpoints", "ledger", "samples", "trace"):
        assert slime(command, folder).code == 0, command
