"""A part of every role can be wrapped by its plugin: `setup.make` of its own role has all that the role is given."""

import json

from tests.conftest import Project, Slime

WRAPS = """
from slime_core import hookimpl
from slime_core.roles import (
    BufferSpec, DataSourceSpec, EngineSpec, LauncherSpec, RewardSpec, TrackerSpec, TransportSpec
)

SLIME_API = "1"
BUILT = []


def wraps(role, name):
    def factory(settings, setup):
        print("wrapping", role, name)
        return setup.make(role, name)
    return factory


@hookimpl
def slime_engines():
    yield EngineSpec("mine", wraps("engine", "local"), transports=("shared-buffer", "disk"))


@hookimpl
def slime_buffers():
    yield BufferSpec("mine", wraps("buffer", "fifo"))


@hookimpl
def slime_data_sources():
    yield DataSourceSpec("mine", wraps("data_source", "prompts"))


@hookimpl
def slime_launchers():
    yield LauncherSpec("mine", wraps("launcher", "local"))


@hookimpl
def slime_rewards():
    yield RewardSpec("mine", wraps("engine", "local"))
"""


def test_a_run_of_wrapped_parts_trains(project: Project, slime: Slime) -> None:
    (project.root / "wraps.py").write_text(WRAPS)
    roles = ("engine", "buffer", "data_source", "launcher")
    project.write_run(num_rollout=2, **{role: {"use": "mine"} for role in roles})
    ran = slime.ok("train", "run.toml", "--plugin", "./wraps.py")
    assert [line for line in ran.out.splitlines() if line.startswith("wrapping")] != []
    assert all(f"wrapping {role} " in ran.out for role in roles)
    rows = (project.run / "metrics.jsonl").read_text().splitlines()
    assert sum("rollout/raw_reward" in json.loads(row)["metrics"] for row in rows) == 2


def test_what_only_its_own_role_can_build_is_refused_to_others_at_once(project: Project, slime: Slime) -> None:
    (project.root / "wraps.py").write_text(WRAPS)
    project.write_run(reward={"use": "mine"})
    assert 'setup.make("engine", "local"): only a factory of the same role can build it' in slime.refused(
        "train", "run.toml", "--plugin", "./wraps.py"
    )
