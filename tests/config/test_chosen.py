"""What a run chose, by role: a spec's class finds the choices of its role, and is their type."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from slime_core.catalog import Catalog
from slime_core.config import ChosenRoles, parse_config, resolve
from slime_core.roles import SELECTABLE, CorrectionSpec, EngineSpec, RewardSpec
from slime_core.sample import Json

REWARDS = {"math": 0.75, "format": 0.25}
LEAST: Mapping[str, Json] = {
    "save": "s",
    "num_rollout": 3,
    "prompt_data": "p.jsonl",
    "rollout_max_response_len": 8,
    "reward": {"use": {**REWARDS}},
}


@pytest.fixture
def roles(tiny_model: Path) -> ChosenRoles:
    return resolve(parse_config({**LEAST, "hf_checkpoint": str(tiny_model)}), Catalog.discover()).roles


def test_a_specs_class_finds_what_was_chosen_of_its_role(roles: ChosenRoles) -> None:
    assert {each.reference: each.weight for each in roles.all(RewardSpec)} == REWARDS
    assert roles.one(EngineSpec) is roles["engine"][0]
    assert isinstance(roles.one(EngineSpec).spec, EngineSpec)
    assert set(roles) == set(SELECTABLE)


def test_a_role_may_have_no_choice(roles: ChosenRoles) -> None:
    assert roles.maybe(CorrectionSpec) is None
    assert roles.all(CorrectionSpec) == ()


def test_a_choice_for_another_process_has_its_role_its_full_name_and_its_settings(roles: ChosenRoles) -> None:
    engine = roles.one(EngineSpec)
    choice = engine.choice()
    assert (choice.role, choice.name, choice.plugin) == ("engine", "slime-local/local", "slime-local")
    assert choice.settings is engine.settings
