"""A part of every role can be wrapped by its plugin: `setup.make` of its own role has all that the role is given."""

from tests.conftest import Project, Slime
from tests.run.reading import metrics

WRAPS = """
from slime_core import hookimpl, roles

SLIME_API = "1"


def offer(hook, spec, wrapped, **given):
    def factory(settings, setup):
        print("wrapping", *wrapped)
        return setup.make(*wrapped)

    globals()[hook] = hookimpl(lambda: [spec("mine", factory, **given)], specname=hook)


offer("slime_engines", roles.EngineSpec, ("engine", "local"), transports=("shared-buffer", "disk"))
offer("slime_buffers", roles.BufferSpec, ("buffer", "fifo"))
offer("slime_data_sources", roles.DataSourceSpec, ("data_source", "prompts"))
offer("slime_launchers", roles.LauncherSpec, ("launcher", "local"))
offer("slime_rewards", roles.RewardSpec, ("engine", "local"))
"""


def test_a_run_of_wrapped_parts_trains(project: Project, slime: Slime) -> None:
    (project.root / "wraps.py").write_text(WRAPS)
    roles = ("engine", "buffer", "data_source", "launcher")
    project.write_run(num_rollout=2, **{role: {"use": "mine"} for role in roles})
    ran = slime.ok("train", "run.toml", "--plugin", "./wraps.py")
    assert all(f"wrapping {role} " in ran.out for role in roles)
    assert ["rollout/raw_reward" in row for row in metrics(project.run)] == [True, True]


def test_what_only_its_own_role_can_build_is_refused_to_others_at_once(project: Project, slime: Slime) -> None:
    (project.root / "wraps.py").write_text(WRAPS)
    project.write_run(reward={"use": "mine"})
    assert 'setup.make("engine", "local"): only a factory of the same role can build it' in slime.refused(
        "train", "run.toml", "--plugin", "./wraps.py"
    )
