"""Names from elsewhere that mean exactly the same: taken, said, and outdone by nothing that stands there already."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime_core.catalog import Catalog
from slime_core.cli.run_options import collect_values
from slime_core.config import TakenNames, parse_config
from slime_core.errors import ConfigError
from slime_core.sample import Json

Slime = Callable[..., Any]
Project = Any
LEAST: dict[str, Json] = {"hf_checkpoint": "m", "save": "s", "num_rollout": 3}


@pytest.fixture(scope="module")
def names() -> TakenNames:
    return TakenNames(Catalog.discover())


def test_what_is_taken_is_written_as_ours_and_said(names: TakenNames) -> None:
    taken = names.place({"rm_type": "math", "use_tis": True, "lr": 1e-5, "disable_rewards_normalization": True})
    assert taken.values == {
        "lr": 1e-5,
        "reward": {"use": "math"},
        "correction": {"use": "tis"},
        "rewards_normalization": False,
    }
    assert taken.notes == [
        "rm_type is slime's: reward.use = 'math'",
        "use_tis is slime's: correction.use = 'tis'",
        "disable_rewards_normalization is slime's: rewards_normalization = False",
    ]
    assert parse_config({**LEAST, "rm_type": "math"}).roles["reward"].use == {"math": 1.0}


def test_a_switch_that_is_off_and_a_value_that_asks_for_what_is_so_change_nothing(names: TakenNames) -> None:
    given: dict[str, Json] = {"use_tis": False, "update_weight_transport": "nccl"}
    for key, value in given.items():
        assert names.place({key: value}) == ({}, [f"{key} is slime's: so anyway"])


def test_a_value_that_is_not_the_same_stays_to_be_told(names: TakenNames) -> None:
    given: dict[str, Json] = {"use_tis": "often", "rollout_seed": 5}
    assert names.place(given) == (given, [])


def test_two_that_contradict_each_other_are_refused(names: TakenNames) -> None:
    with pytest.raises(ConfigError, match=r"rm_type = 'math' contradicts reward.use = 'dapo'"):
        names.place({"reward": {"use": "dapo"}, "rm_type": "math"})


def test_a_flag_by_slimes_name_wins_over_the_run_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('rm_type = "dapo"\n[correction]\nuse = "icepop"\n')
    values = collect_values(path, {"rm_type": "math", "use_tis": True}, {}, Catalog.discover())
    assert values == {"reward": {"use": "math"}, "correction": {"use": "tis"}}


def test_the_plan_says_for_what_a_flag_is_taken(project: Project, slime: Slime) -> None:
    (project.root / "run.toml").unlink(missing_ok=True)
    path = project.write_run(correction={"use": []})
    ran = slime("plan", path, "--use-tis", "--disable-grpo-std-normalization", "--train-backend=local")
    assert ran.code == 0, ran.err
    assert "use_tis is slime's: correction.use = 'tis'" in ran.out
    assert "train_backend is slime's: trainer.use = 'local'" in ran.out
    helped = slime("plan", "--use-tis", "--help")
    assert "--use-tis" not in helped.out, "help shows our names alone"
