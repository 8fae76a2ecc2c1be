"""`colocate` and its two halves: refused where engine and trainer do not take turns, or have nothing to give up."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from slime_core.config import parse_config
from slime_core.config.fit import check_turns
from slime_core.errors import ConfigError
from slime_core.roles import EngineSpec, MemoryTag, TrainerSpec
from slime_core.sample import Json

RUN: Mapping[str, Json] = {"hf_checkpoint": "m", "prompt_data": "p.jsonl", "num_rollout": 1, "save": "runs/x"}
ENGINE = EngineSpec("served", print, releases=frozenset({MemoryTag.KV_CACHE}))
TRAINER = TrainerSpec("sharded", print, releases=frozenset({MemoryTag.OPTIMIZER}))


@dataclass(frozen=True)
class Case:
    keys: Mapping[str, Json]
    error: str
    engine: EngineSpec = ENGINE
    trainer: TrainerSpec = TRAINER
    rest: Mapping[str, Json] = field(default_factory=lambda: {"reward": {"use": "math"}})


@pytest.mark.parametrize(
    "case",
    [
        Case({"colocate": True, "rollout_policy": "async"}, 'colocate = true: with rollout_policy = "async"'),
        Case({"colocate": True, "rollout_policy": "continuous"}, 'set rollout_policy = "sync"'),
        Case({"offload_train": True, "rollout_policy": "async"}, "offload_train = true: with rollout_policy"),
        Case({"colocate": True}, "engine 'plain' cannot .* offload_rollout = false", engine=EngineSpec("plain", print)),
        Case({"offload_train": True}, "trainer 'plain' cannot .* another trainer", trainer=TrainerSpec("plain", print)),
        Case({"colocate": True, "debug_rollout_only": True}, "colocate = true has no effect here"),
        Case({"offload_rollout": True}, "offload_rollout = true has no effect", rest={"loss": {"use": "sft_loss"}}),
    ],
    ids=lambda case: "-".join(case.keys),
)
def test_what_cannot_take_turns_is_refused_and_says_what_to_set(case: Case) -> None:
    config = parse_config({**RUN, **case.rest, **case.keys})
    with pytest.raises(ConfigError, match=case.error):
        check_turns(config, case.engine, case.trainer)


@pytest.mark.parametrize(
    ("keys", "train", "rollout"),
    [
        ({}, False, False),
        ({"colocate": True}, True, True),
        ({"colocate": True, "offload_train": False}, False, True),
        ({"offload_rollout": True}, False, True),
    ],
)
def test_the_halves_follow_colocate_unless_said(keys: Mapping[str, Json], train: bool, rollout: bool) -> None:
    config = parse_config({**RUN, "reward": {"use": "math"}, **keys})
    check_turns(config, ENGINE, TRAINER)
    assert (config.cluster.offloads_train, config.cluster.offloads_rollout) == (train, rollout)
