"""Plugins that break what their role promises: refused by name, and before any process where that can be."""

import pytest

from tests.conftest import Install, Project, Slime
from tests.tables import table

HEADER = """
from slime_core.hookspecs import hookimpl
from slime_core.roles import *
from slime_core.sample import *
from slime_core.score import *

SLIME_API = "1"

"""
BREAKS = """
@hookimpl
def slime_generators():
    yield GeneratorSpec("odd", lambda settings, setup: None)

@hookimpl
def slime_reward_shapers():
    yield RewardShaperSpec("odd", lambda settings, setup: 1 / 0)

@hookimpl
def slime_group_filters():
    yield GroupFilterSpec("odd", lambda settings, setup: exit(0))

@hookimpl
def slime_buffers():
    class Odd:
        def add(self, groups): pass
        def sample(self, want, ctx): return Draw([], [])
        def update(self, scores): pass
        def evict(self, ctx): return {}
        def state_dict(self): return {}
        def load_state_dict(self, state): pass
        def __len__(self): return 0
    yield BufferSpec("odd", lambda settings, setup: Odd())

@hookimpl
def slime_losses():
    yield LossSpec("odd", lambda settings, setup: lambda batch: batch.log_probs_T)
"""
ANSWERS = {
    "buffer": "buffer of plugin slime-odd: it holds 4 groups and returned none of 4: return groups while",
    "loss-type": "loss of plugin slime-odd: expected a LossOutput, got Tensor",
}
"""In the driver and on a rank; the kit has the others."""


def install(install_plugin: Install) -> None:
    install_plugin("slime-odd", {"slime_odd.py": HEADER + BREAKS}, entry_points={"odd": "slime_odd"})


@table(
    "flag, says",
    [
        ("--generator", "the factory of generator 'odd' of plugin slime-odd made NoneType None; expected a Generator"),
        ("--reward-shaper", "the factory of reward_shaper 'odd' of plugin slime-odd raised ZeroDivisionError"),
        ("--group-filter", "the factory of group_filter 'odd' of plugin slime-odd raised SystemExit: 0"),
    ],
)
def test_what_a_factory_makes_is_looked_at_before_any_process_starts(
    project: Project, slime: Slime, install_plugin: Install, flag: str, says: str
) -> None:
    install(install_plugin)
    assert says in slime.refused("train", "run.toml", flag, "odd")
    assert not list((project.run / "logs").glob("*"))


@pytest.mark.parametrize("flag", ANSWERS)
def test_an_answer_that_breaks_its_contract_ends_the_run_by_name(
    project: Project, slime: Slime, install_plugin: Install, flag: str
) -> None:
    install(install_plugin)
    assert ANSWERS[flag] in slime.refused("train", "run.toml", f"--{flag}", "odd", "--num-rollout", 1)
