"""Choosing plugins: flags, the run file's [plugins], the environment; kept by the run folder and on resume."""

import re
import shutil
import tomllib
from typing import Any

import pytest

from tests.conftest import Install, Project, Slime
from tests.tables import table

SOURCE = """
import slime_core
from slime_core import RewardSpec, Score, hookimpl

SLIME_API = "1"


async def reward(sample, ctx):
    return Score(float(len(sample.response)))


@hookimpl
def slime_rewards():
    yield RewardSpec.from_function("NAME", reward)


@hookimpl
def slime_run_start(event):
    print("NAME watches", slime_core.__name__)
"""


@pytest.fixture
def two(project: Project, install_plugin: Install, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project beside two installed plugins."""
    monkeypatch.delenv("SLIME_PLUGINS", raising=False)
    for name in ("one", "two"):
        install_plugin(f"slime-my-{name}", {f"my_{name}.py": source(name)}, entry_points={f"my-{name}": f"my_{name}"})
    return project


def source(name: str) -> str:
    return SOURCE.replace("NAME", name)


def order(slime: Slime, *arguments: object) -> list[str]:
    """The plugins that a plan has loaded, ours alone, in order."""
    ran = slime.ok("plan", "run.toml", "--json", *arguments)
    names = [each.partition(" ")[0] for each in ran.json()["plugins"]]
    return [name for name in names if name.startswith(("slime-my", "./"))]


def test_flags_add_to_the_run_file(two: Project, slime: Slime) -> None:
    (two.root / "mine.py").write_text(source("mine"))
    assert order(slime) == ["slime-my-one", "slime-my-two"]
    assert order(slime, "--plugin", "my-two") == ["slime-my-two", "slime-my-one"]
    assert order(slime, "--no-plugin", "my-two", "--plugin", "./mine.py") == ["slime-my-one", "./mine.py"]
    two.write_run(plugins={"without": ["my-one"], "require": ["slime-my-two"]})
    assert order(slime) == ["slime-my-two"]
    assert order(slime, "--plugin", "./mine.py") == ["slime-my-two", "./mine.py"]
    two.write_run(plugins={"require": ["my-two"], "modules": ["mine.py"]})
    assert order(slime, "--plugin", "my-one", "--reward", "mine.py/mine")[:2] == ["slime-my-one", "slime-my-two"]


def test_a_plan_prints_order_and_what_is_left_out(two: Project, slime: Slime) -> None:
    ran = slime.ok("plan", "run.toml", "--plugin", "my-two", "--no-plugin", "my-one")
    assert "plugins, in order   slime-core" in ran.out
    assert "slime-my-two 1.0" in ran.out
    assert "left out            slime-my-one" in ran.out


@table(
    "flags, plugins, message",
    [
        (["--plugin", "my-twoo"], {}, "no plugin 'my-twoo' (--plugin or [plugins] require). Did you mean 'my-two'?"),
        (["--no-plugin", "my-twoo"], {}, "no plugin 'my-twoo' (--no-plugin or [plugins] without). Did you mean"),
        (["--no-plugin", "./mine.py"], {}, "no plugin './mine.py' (--no-plugin or"),
        (["--plugin", "./none.py"], {}, "no file ./none.py: looked for /"),
        ([], {"requires": ["my-two"]}, "unknown key 'requires' in [plugins]. Did you mean 'require'?"),
        ([], {"require": "my-two"}, "plugins.require = 'my-two': write a list of names, [\"NAME\"]"),
        ([], {"only": ["my-twoo"]}, "no plugin 'my-twoo' (SLIME_PLUGINS or [plugins] only). Did you mean 'my-two'?"),
    ],
)
def test_what_is_mistyped_or_contradicts_itself_is_refused(
    two: Project, slime: Slime, flags: list[str], plugins: dict[str, Any], message: str
) -> None:
    two.write_run(plugins=plugins)
    assert message in slime.refused("train", "run.toml", *flags)
    assert not two.run.exists()


def test_a_run_keeps_its_plugins_and_resumes_with_them(
    two: Project, slime: Slime, monkeypatch: pytest.MonkeyPatch
) -> None:
    (two.root / "mine.py").write_text(source("mine"))
    two.write_run(num_rollout=1, reward={"use": "two"})
    monkeypatch.setenv("SLIME_PLUGINS", "my-two,slime-my-one")
    assert "slime-my-one is both asked for" in slime.refused(
        "train", "run.toml", "--no-plugin", "my-one", "--plugin", "./mine.py"
    )
    monkeypatch.setenv("SLIME_PLUGINS", "my-two,slime-local")
    ran = slime.ok("train", "run.toml", "--plugin", "./mine.py")
    assert [line for line in ran.out.splitlines() if "watches" in line] == [
        "two watches slime_core",
        "mine watches slime_core",
    ]
    kept = tomllib.loads((two.run / "run.toml").read_text())["plugins"]
    assert kept == {"modules": ["./mine.py"], "only": ["my-two", "slime-local"]}
    monkeypatch.delenv("SLIME_PLUGINS")
    ran = slime.ok("resume", two.run, "--num-rollout", 2, "--no-progress")
    assert next(line for line in ran.out.splitlines() if "watches" in line) == "two watches slime_core"
    assert "one watches" not in ran.out


def test_a_resume_names_a_package_that_is_gone_or_changed(two: Project, slime: Slime, install_plugin: Install) -> None:
    two.write_run(num_rollout=1, reward={"use": "two"})
    assert slime("train", "run.toml").code == 0
    site, module = two.root / "site", two.root / "site" / "my_two.py"
    module.write_text(f"{source('two')}\n# changed\n")
    refusal = slime.refused("resume", two.run, "--num-rollout", 2)
    assert "slime-my-two 1.0 (reward/two) has changed code under the same version" in refusal
    module.write_text(source("two"))
    shutil.move(site / "slime_my_two-1.0.dist-info", two.root / "away")
    refusal = slime.refused("resume", two.run, "--num-rollout", 2)
    assert "no reward 'two'." in refusal
    assert "slime-my-two 1.0 (reward/two) is not loaded now: pip install 'slime-my-two==1.0'" in refusal
    install_plugin("slime-my-two", {}, entry_points={"my-two": "my_two"}, version="2.0")
    refusal = slime.refused("resume", two.run, "--num-rollout", 2)
    assert "was made with other plugins" in refusal
    assert "slime-my-two 1.0 (reward/two) is 2.0 now: pip install 'slime-my-two==1.0'" in refusal
    assert "slime-my-one" not in refusal
    ran = slime.ok("resume", two.run, "--num-rollout", 2, "--accept-changed-plugins", "--no-progress")
    assert "changed since the checkpoint, and accepted: slime-my-two 1.0 (reward/two) is 2.0 now" in ran.out
    assert slime("resume", two.run, "--num-rollout", 3).code == 0  # the new version is the run's own now


def test_a_resume_names_a_file_of_the_project_that_changed(two: Project, slime: Slime) -> None:
    rewards = two.root / "rewards.py"
    rewards.write_text("from slime_core import Score\n\n\nasync def one(sample, ctx):\n    return Score(1.0)\n")
    two.write_run(num_rollout=1, reward={"use": "./rewards.py:one"})
    assert slime("train", "run.toml").code == 0
    assert slime("resume", two.run, "--num-rollout", 2).code == 0
    rewards.write_text(rewards.read_text().replace("1.0", "0.5"))
    refusal = slime.refused("resume", two.run, "--num-rollout", 3)
    assert re.search(r"rewards\.py sha256:\w{12} \(reward/\S+:one\) is sha256:\w{12} now", refusal)
    assert slime("resume", two.run, "--num-rollout", 3, "--accept-changed-plugins").code == 0
