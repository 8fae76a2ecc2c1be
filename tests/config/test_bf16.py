"""bf16 is for an engine and a trainer that can; others are refused before anything starts."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from slime_core.catalog import Catalog
from slime_core.config import Plan, parse_config, resolve
from slime_core.config.resolving import check_bf16
from slime_core.errors import ConfigError
from slime_core.roles import EngineSpec, TrainerSpec
from slime_core.sample import Json

LEAST: Mapping[str, Json] = {
    "save": "s",
    "num_rollout": 3,
    "prompt_data": "p.jsonl",
    "rollout_max_response_len": 8,
    "reward": {"use": "math"},
    "bf16": True,
}


def plan_of(model: Path, **changes: Json) -> Plan:
    return resolve(parse_config({**LEAST, "hf_checkpoint": str(model), **changes}), Catalog.discover())


def refusal(plan: Plan, *, engine: bool, trainer: bool) -> str | None:
    """What is said where the engine or the trainer can or cannot."""
    engine_spec, trainer_spec = plan.roles.one(EngineSpec).spec, plan.roles.one(TrainerSpec).spec
    try:
        check_bf16(plan.config, replace(engine_spec, bf16=engine), replace(trainer_spec, bf16=trainer), plan.catalog)
    except ConfigError as error:
        return str(error)
    return None


def test_an_engine_or_a_trainer_that_cannot_is_refused(tiny_model: Path) -> None:
    plan = plan_of(tiny_model)
    assert refusal(plan, engine=True, trainer=True) is None
    said = refusal(plan, engine=False, trainer=True)
    assert said is not None
    assert "bf16 has no effect on engine 'local'" in said
    said = refusal(plan, engine=True, trainer=False)
    assert said is not None
    assert "bf16 has no effect on trainer 'local'" in said


def test_what_a_run_does_not_start_need_not_be_able(tiny_model: Path) -> None:
    alone = plan_of(tiny_model, debug_rollout_only=True)
    assert refusal(alone, engine=True, trainer=False) is None
    assert refusal(alone, engine=False, trainer=False) is not None
    stored = plan_of(tiny_model, load_debug_rollout_data="other")
    assert refusal(stored, engine=False, trainer=True) is None
    assert refusal(stored, engine=False, trainer=False) is not None


@pytest.mark.parametrize("value", ["fp16", 2])
def test_it_is_on_or_off(tiny_model: Path, value: Json) -> None:
    with pytest.raises(ConfigError, match="bf16"):
        plan_of(tiny_model, bf16=value)
