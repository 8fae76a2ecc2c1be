"""How many train and how many generate, by slime's names: one way for all trainers and engines."""

from collections.abc import Callable, Mapping

import pytest

from slime_core.catalog import Catalog
from slime_core.config import RunConfig, parse_config
from slime_core.errors import ConfigError
from slime_core.sample import Json
from tests.tables import table

Install = Callable[..., None]
LEAST: Mapping[str, Json] = {"hf_checkpoint": "m", "save": "s", "num_rollout": 3, "reward": {"use": "math"}}
CATALOG = Catalog.discover()
FIXED = """
from slime_core import Settings, hookimpl
from slime_core.roles import EngineSpec, TrainerSpec

SLIME_API = "1"


@hookimpl
def slime_engines():
    yield EngineSpec("fixed", print, Settings, "x")


@hookimpl
def slime_trainers():
    yield TrainerSpec("fixed", print, Settings, "x")
"""


def parsed(changes: Mapping[str, Json], catalog: Catalog = CATALOG) -> RunConfig:
    return parse_config({**LEAST, **changes}, catalog)


def refused(changes: Mapping[str, Json], catalog: Catalog = CATALOG) -> str:
    with pytest.raises(ConfigError) as raised:
        parsed(changes, catalog)
    return str(raised.value)


def counts(config: RunConfig) -> tuple[object, int, object]:
    """Ranks, engines, and workers of one engine, as far as they are said."""
    trainer, engine = (config.roles[role].sections.get("local", {}) for role in ("trainer", "engine"))
    return trainer.get("ranks"), config.rollout.rollout_num_engines, engine.get("workers")


@table(
    "changes, expected",
    [
        ({}, (None, 1, None)),
        ({"actor_num_gpus_per_node": 3}, (3, 1, None)),
        ({"actor_num_nodes": 2, "actor_num_gpus_per_node": 3}, (6, 1, None)),
        ({"actor_num_nodes": "2", "actor_num_gpus_per_node": "3"}, (6, 1, None)),
        ({"rollout_num_gpus": 4}, (None, 4, 1)),
        ({"rollout_num_gpus": 4, "rollout_num_gpus_per_engine": 2}, (None, 2, 2)),
        ({"rollout_num_gpus": 4, "engine": {"local": {"workers": 2}}}, (None, 2, 2)),
        ({"rollout_num_gpus_per_engine": 3}, (None, 1, 3)),
        ({"rollout_num_gpus_per_engine": 3, "rollout_num_engines": "2"}, (None, "2", 3)),
        ({"actor_num_gpus_per_node": 3, "trainer": {"local": {"ranks": 3}}}, (3, 1, None)),
        ({"rollout_num_gpus": 4, "rollout_num_engines": "4"}, (None, 4, 1)),
    ],
)
def test_counts_land_where_trainer_and_engine_have_them(
    changes: Mapping[str, Json], expected: tuple[object, int, object]
) -> None:
    assert counts(parsed(changes)) == tuple(int(each) if isinstance(each, str) else each for each in expected)


@table(
    "changes, message",
    [
        ({"actor_num_nodes": 2}, "actor_num_nodes has no effect here: give actor_num_gpus_per_node, the ranks on each"),
        (
            {"actor_num_gpus_per_node": 2, "trainer": {"local": {"ranks": 4}}},
            "contradicts trainer.local.ranks = 4: give",
        ),
        ({"rollout_num_gpus": 5, "rollout_num_gpus_per_engine": 2}, "per_engine = 2: 2 engines leave 1 over"),
        (
            {"rollout_num_gpus": 4, "rollout_num_gpus_per_engine": 2, "rollout_num_engines": 4},
            "rollout_num_gpus / rollout_num_gpus_per_engine = 2 contradicts rollout_num_engines = 4: give one of them",
        ),
        (
            {"rollout_num_gpus_per_engine": 2, "engine": {"local": {"workers": 4}}},
            "contradicts engine.local.workers = 4",
        ),
        ({"rollout_num_gpus": 0}, "rollout_num_gpus = 0: input should be greater than or equal to 1"),
        ({"actor_num_nodes": "two"}, "actor_num_nodes = 'two': input should be a valid integer"),
    ],
)
def test_counts_that_cannot_be_are_refused(changes: Mapping[str, Json], message: str) -> None:
    assert message in refused(changes)


def test_what_has_no_setting_for_it_is_not_counted(install_plugin: Install) -> None:
    install_plugin("slime-fixed", {"slime_fixed.py": FIXED}, entry_points={"fixed": "slime_fixed"})
    catalog = Catalog.discover()
    fixed: dict[str, Json] = {"trainer": {"use": "fixed"}, "engine": {"use": "fixed"}}
    assert (
        refused({**fixed, "actor_num_gpus_per_node": 2}, catalog)
        == "actor_num_gpus_per_node has no effect here: trainer 'fixed' has no setting for it; leave it out"
    )
    assert "engine 'fixed' has no setting for it; leave it out" in refused(
        {**fixed, "rollout_num_gpus_per_engine": 2}, catalog
    )
    assert parsed({**fixed, "rollout_num_gpus": 2}, catalog).rollout.rollout_num_engines == 2
