"""Every function that slime takes by a path, unchanged, in one real run of the local backend, and after a stop."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from slime_core.sample import Json
from tests.conftest import Project, Ran
from tests.run.reading import ledger, metrics, samples

WRITTEN_FOR_SLIME = Path(__file__).parents[2] / "plugins" / "slime-compat" / "tests" / "written_for_slime.py"
MODULE = "written_for_slime."


@pytest.fixture
def everything(project: Project, monkeypatch: pytest.MonkeyPatch) -> dict[str, Json]:
    """A run file that names a function of slime's for each of its flags."""
    shutil.copy(WRITTEN_FOR_SLIME, project.root)
    monkeypatch.syspath_prepend(project.root)
    return {
        "prompt_data": None,
        "input_key": None,
        "label_key": None,
        "apply_chat_template": None,
        "data_source": {"use": "source", "source": {"path": f"{MODULE}Counting"}},
        "generator": {"use": "generate", "generate": {"path": f"{MODULE}custom_generate"}},
        "reward": {"use": "rm", "rm": {"path": f"{MODULE}rm_that_reads_args", "args": {"right": 2.0}}},
        "group_reward": {"use": "group_rm", "group_rm": {"path": f"{MODULE}group_rm"}},
        "group_filter": {"use": "dynamic_filter", "dynamic_filter": {"path": f"{MODULE}dynamic_filter"}},
        "sample_filter": {"use": "rollout_filter", "rollout_filter": {"path": f"{MODULE}rollout_filter"}},
        "buffer_filter": {"use": "buffer_filter", "buffer_filter": {"path": "./written_for_slime.py:pop_first"}},
        "reward_shaper": {"use": "post_process", "post_process": {"path": f"{MODULE}post_process"}},
    }


def test_functions_for_all_of_slimes_flags_run_together_and_resume(
    project: Project, everything: dict[str, Json], slime: Callable[..., Ran]
) -> None:
    slime.ok("train", project.write_run(**everything), "--no-progress")
    first, second = metrics(project.run)
    for row in (first, second):
        assert row["rollout/reward/rm"] == 0.0  # an untrained model is never right, and `wrong` defaults to 0
        assert row["rollout/group_reward/group_rm"] > 0  # the longest of each group
        assert row["rollout/sample_filter/remove_sample"] >= 4
        assert row["rollout/shaped_reward"] == pytest.approx(0.0, abs=1e-6)  # its mean is subtracted
        assert 0 < row["rollout/raw_reward"] < 1
    made = samples(project.run)
    assert {sample["prompt"] for sample in made} == {sample["label"] for sample in made}
    assert all(sample["response_length"] > 0 for sample in made)

    slime.ok("resume", project.run, "--num-rollout", "3", "--no-progress")
    drawn = [entry["id"] for entry in ledger(project.run) if entry["state"] == "drawn"]
    assert len(drawn) == len(set(drawn)), "the source went on where its file in the checkpoint said"
