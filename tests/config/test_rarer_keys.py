"""Keys of less common runs: older weights, models beside checkpoints, data kept for a look; what is refused of them."""

from pathlib import Path
from typing import Any

import pytest

from slime_core.catalog import Catalog
from slime_core.config import Plan, parse_config, read_run_file, resolve
from slime_core.errors import ConfigError
from slime_core.sample import Json

Project = Any
TIS: Json = {"use": "tis"}
PLUGIN = """
from slime_core import hookimpl
from slime_core.roles import EngineSpec, MemoryTag, TrainerSpec, TransportSpec

SLIME_API = "1"


@hookimpl
def slime_engines():
    yield EngineSpec("waiting", print, transports=("meeting",))
    yield EngineSpec("shrinking", print, transports=("disk",), releases=frozenset({MemoryTag.WEIGHTS}))


@hookimpl
def slime_trainers():
    yield TrainerSpec("simple", print)


@hookimpl
def slime_transports():
    yield TransportSpec("meeting", print, rendezvous=True)
"""


def plan_of(project: Project, **changes: Json) -> Plan:
    (project.root / "mine.py").write_text(PLUGIN)
    path: Path = project.write_run(save=str(project.run), plugins={"modules": ["./mine.py"]}, **changes)
    config = parse_config(read_run_file(path))
    return resolve(config, Catalog.discover(config.plugins))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"keep_old_actor": True, "rollout_policy": "async"}, "without a correction, ratios are against the sampler's"),
        ({"keep_old_actor": True, "correction": TIS}, "by the very weights that its training begins with"),
        (
            {"keep_old_actor": True, "correction": TIS, "rollout_policy": "continuous"},
            "here its tokens are of several: leave it out",
        ),
        (
            {"keep_old_actor": True, "correction": TIS, "rollout_policy": "async", "trainer": {"use": "simple"}},
            "trainer 'simple' holds no old policy's model: keep_old_actor needs a trainer that does",
        ),
        (
            {"update_weights_interval": 3, "rollout_policy": "continuous"},
            "update_weights_interval = 3 lets weights be 2 versions behind, and max_staleness = 1: give at least that",
        ),
        (
            {"update_weights_interval": 2, "debug_rollout_only": True},
            "update_weights_interval = 2 has no effect here: only one of engine and trainer is started",
        ),
        (
            {"update_weights_interval": 2, "engine": {"use": "waiting"}},
            "by transport 'meeting' an engine that is",
        ),
        (
            {"update_weights_interval": 2, "engine": {"use": "shrinking"}, "offload_rollout": True},
            "engine 'shrinking' gives its weights up while the trainer works",
        ),
        ({"reset_optimizer_states": True, "trainer": {"use": "simple"}}, "has no effect on trainer 'simple'"),
        (
            {"save_hf": "m/{rollout}"},
            "nothing is known of {rollout}. Did you mean 'rollout_id'? It may say",
        ),
        ({"save_hf": "m/{rollout_id"}, "save_hf = 'm/{rollout_id'"),
        ({"save_hf": "m/{rollout_id:06d}"}, "a name alone stands in braces"),
        ({"save_hf": "m", "checkpoint_hf": False}, "the model is linked from the checkpoint's"),
        ({"save_hf": "m", "debug_rollout_only": True}, "the model stays as it is"),
        ({"save_debug_train_data": "d/{step}"}, "nothing is known of {step}. It may say {rollout_id} and {rank}"),
        (
            {"save_debug_train_data": "d/{rollout_id}", "trainer": {"use": "local", "local": {"ranks": 2}}},
            "2 ranks of trainer 'local' would write one file: put {rank} into its name",
        ),
        ({"save_debug_train_data": "d", "trainer": {"use": "simple"}}, "has no effect on trainer 'simple'"),
        ({"save_debug_train_data": "d", "debug_rollout_only": True}, "debug_rollout_only starts no trainer"),
        ({"load_debug_rollout_data_subsample": 0.5}, "has no effect here: give load_debug_rollout_data"),
        ({"load_debug_rollout_data_subsample": 0.0}, "load_debug_rollout_data_subsample = 0.0"),
    ],
)
def test_what_cannot_be_or_changes_nothing_is_refused(project: Project, changes: dict[str, Json], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        plan_of(project, **changes)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"keep_old_actor": True, "correction": TIS, "rollout_policy": "async"},
        {"keep_old_actor": True, "correction": TIS, "update_weights_interval": 2},
        {"update_weights_interval": 2, "rollout_policy": "continuous"},
        {"update_weights_interval": 3, "rollout_policy": "continuous", "max_staleness": 2},
        {"reset_optimizer_states": True, "save_hf": "models/{rollout_id}", "save_debug_train_data": "d/{rollout_id}"},
    ],
)
def test_what_can_be_is_taken(project: Project, changes: dict[str, Json]) -> None:
    plan_of(project, **changes)
