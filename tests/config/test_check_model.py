"""A trainer looks at the model in the plan, before anything starts."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from slime_core.catalog import Catalog
from slime_core.config import parse_config, resolve
from slime_core.errors import ConfigError, PluginError
from slime_core.roles import PluginSet
from slime_core.sample import Json

LEAST: Mapping[str, Json] = {
    "save": "s",
    "num_rollout": 3,
    "prompt_data": "p.jsonl",
    "rollout_max_response_len": 8,
    "reward": {"use": "math"},
    "trainer": {"use": "picky"},
}
PICKY = """
from slime_core import hookimpl
from slime_core.errors import ConfigError
from slime_core.roles import TrainerSpec

SLIME_API = "1"

def check(settings, model_config):
    {body}

@hookimpl
def slime_trainers():
    yield TrainerSpec("picky", lambda rank, world_size, setup: None, check_model=check)
"""


def planned(model: Path, body: str, **changes: Json) -> None:
    Path("picky.py").write_text(PICKY.replace("{body}", body), "utf-8")
    catalog = Catalog.discover(PluginSet(only=("slime-local", "slime-reward-math"), modules=("./picky.py",)))
    resolve(parse_config({**LEAST, "hf_checkpoint": str(model), **changes}), catalog)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_trainer_refuses_a_model_in_the_plan(tiny_model: Path) -> None:
    with pytest.raises(ConfigError, match="no heads for qwen3"):
        planned(tiny_model, "raise ConfigError('no heads for ' + model_config['model_type'])")


def test_an_error_of_its_own_is_blamed_on_its_plugin(tiny_model: Path) -> None:
    with pytest.raises(PluginError, match=r"check_model of trainer 'picky'.*KeyError"):
        planned(tiny_model, "model_config['heads']")


def test_a_run_that_does_not_train_does_not_ask(tiny_model: Path) -> None:
    planned(tiny_model, "raise ConfigError('no')", debug_rollout_only=True)
