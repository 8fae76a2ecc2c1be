"""Each of several engines is told which it is, how much is asked at once, and what the run will want and do with it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from slime_core.catalog import Catalog
from slime_core.config import ChosenRoles, parse_config, resolve
from slime_core.roles import Engine, EngineSetup, EngineSpec, Extra, LauncherSetup, LauncherSpec, Settings
from slime_core.run import RunFolder
from slime_core.run.build import Builder
from slime_core.sample import Json
from tests.tables import table

LEAST: Mapping[str, Json] = {
    "save": "s",
    "num_rollout": 3,
    "prompt_data": "p.jsonl",
    "rollout_max_response_len": 8,
    "rollout_num_engines": 3,
    "max_concurrency": 64,
    "reward": {"use": "math"},
}


def setups_of(keys: Mapping[str, Json], want: frozenset[Extra], scratch: Path) -> list[EngineSetup]:
    """What the factory of each engine of a run is given."""
    setups: list[EngineSetup] = []

    def factory(settings: Settings, setup: EngineSetup) -> Engine:
        setups.append(setup)
        return made(engine.settings, setup)

    plan = resolve(parse_config({**LEAST, **keys}), Catalog.discover())
    engine = plan.roles.one(EngineSpec)
    made = engine.spec.factory
    spec = EngineSpec("told", factory)
    told = replace(engine, registered=replace(engine.registered, spec=spec), settings=Settings())
    builder = Builder(replace(plan, roles=ChosenRoles({**plan.roles, "engine": (told,)}), want=want))
    setup = LauncherSetup(builder.make, 0, scratch=scratch)
    launcher = plan.roles.one(LauncherSpec).spec.factory(Settings(), setup)
    builder.policy_engines(launcher, RunFolder(scratch))
    return setups


@table(
    "keys, offloads, colocate_with",
    [
        ({}, False, None),
        ({"offload_rollout": True}, True, None),
        ({"colocate": True}, True, "trainer"),
        ({"colocate": True, "offload_rollout": False}, False, "trainer"),
    ],
)
def test_an_engine_knows_whether_it_will_give_memory_up(
    tiny_model: Path, tmp_path: Path, keys: Mapping[str, Json], offloads: bool, colocate_with: str | None
) -> None:
    setups = setups_of({"hf_checkpoint": str(tiny_model), **keys}, frozenset(), tmp_path)
    assert {(each.offloads, each.colocate_with) for each in setups} == {(offloads, colocate_with)}
