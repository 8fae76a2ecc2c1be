"""Which transport a plan has: the engine's favourite that both sides have, or the one that the run file says."""

from pathlib import Path
from typing import Any

import pytest

from slime_core.catalog import Catalog
from slime_core.config import Plan, parse_config, read_run_file, resolve
from slime_core.errors import ConfigError, UnknownName
from slime_core.roles import TransportSpec
from slime_core.sample import Json

Project = Any

PLUGIN = """
from slime_core import hookimpl
from slime_core.roles import EngineSpec, TrainerSpec

SLIME_API = "1"


@hookimpl
def slime_engines():
    yield EngineSpec("served", print, transports=("ipc", "disk"))


@hookimpl
def slime_trainers():
    yield TrainerSpec("choosy", print, transports=("ipc", "shared-buffer"))
"""


def plan_of(project: Project, **changes: Json) -> Plan:
    (project.root / "mine.py").write_text(PLUGIN)
    plugins: Json = {"modules": ["./mine.py"]}
    path: Path = project.write_run(save=str(project.run), plugins=plugins, **changes)
    return resolve(parse_config(read_run_file(path)), Catalog.discover(parse_config(read_run_file(path)).plugins))


def test_it_is_the_engines_favourite(project: Project) -> None:
    plan = plan_of(project)
    assert plan.roles.one(TransportSpec).registered.qualified == "slime-train/shared-buffer"
    assert plan_of(project, engine={"use": "served"}).roles.one(TransportSpec).reference == "disk"


def test_the_run_file_has_the_last_word_and_the_settings(project: Project) -> None:
    folder = str(project.root / "nfs")
    plan = plan_of(project, transport={"use": "disk", "disk": {"folder": folder}})
    chosen = plan.roles.one(TransportSpec)
    assert (chosen.reference, str(chosen.settings.folder)) == ("disk", folder)  # type: ignore[attr-defined]
    assert plan.unused == ()


def test_settings_of_what_is_agreed_are_used_and_of_others_are_not(project: Project) -> None:
    settings: Json = {"disk": {"folder": "nfs"}}
    plan = plan_of(project, engine={"use": "served"}, transport=settings)
    assert (str(plan.roles.one(TransportSpec).settings.folder), plan.unused) == ("nfs", ())  # type: ignore[attr-defined]
    assert plan_of(project, transport=settings).unused == ("transport.disk",)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"engine": {"use": "served"}, "trainer": {"use": "choosy"}}, r"trainer 'choosy' .* engine 'served' .*common"),
        ({"engine": {"use": "served"}, "transport": {"use": "shared-buffer"}}, r"use = 'slime-train/disk' would do"),
        ({"transport": {"use": "dsk"}}, r"Did you mean 'disk'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(project: Project, changes: Json, says: str) -> None:
    with pytest.raises((ConfigError, UnknownName), match=says):
        plan_of(project, **changes)


def test_on_several_nodes_nothing_travels_by_one_machines_memory(project: Project) -> None:
    nodes: dict[str, Json] = {"actor_num_nodes": 2, "actor_num_gpus_per_node": 1, "trainer": {"use": "local"}}
    assert plan_of(project, **nodes).roles.one(TransportSpec).reference == "disk"
    with pytest.raises(ConfigError, match="'shared-buffer' is for one machine, and actor_num_nodes = 2: leave it out"):
        plan_of(project, **nodes, transport={"use": "shared-buffer"})


def test_a_trainer_that_continues_from_the_model_alone_keeps_it_in_checkpoints(project: Project) -> None:
    assert not plan_of(project, checkpoint_hf=False).config.run.checkpoint_hf
    with pytest.raises(ConfigError, match="checkpoint_hf = false: trainer 'choosy' continues from hf/ alone"):
        plan_of(project, checkpoint_hf=False, trainer={"use": "choosy"})
