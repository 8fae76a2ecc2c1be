"""The examples of the documentation are run, so that they stay true."""

import asyncio
import importlib.util
import re
import tomllib
from pathlib import Path

from slime_core import API_VERSION, RewardContext, RewardSpec, Sample, Score
from slime_core.roles import Setup

DOCS = Path(__file__).resolve().parent.parent / "docs"


def fenced(page: str, title: str) -> str:
    """The code block of that title on a page of the documentation."""
    text = (DOCS / page).read_text("utf-8")
    (block,) = re.findall(rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```', text, re.MULTILINE | re.DOTALL)
    return str(block)


def test_the_plugin_of_the_guide_scores_a_sample(tmp_path: Path) -> None:
    path = tmp_path / "slime_reward_exact.py"
    path.write_text(fenced("plugins.md", path.name), "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    plugin = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plugin)

    (offered,) = plugin.slime_rewards()

    assert plugin.SLIME_API == API_VERSION
    assert isinstance(offered, RewardSpec)
    reward = offered.factory(offered.settings(), Setup(make=_makes_nothing, seed=0))
    ctx = RewardContext(rollout_id=0, evaluation=False, seed=0)
    assert asyncio.run(reward(Sample(response=" 42\n", label="42"), ctx)) == Score(1.0)
    assert asyncio.run(reward(Sample(response="41", label="42"), ctx)) == Score(0.0)


def _makes_nothing(role: str, name: str, **settings: object) -> object:
    raise AssertionError(f"the example asks for no other choice, yet it asked for {role} {name}")


def test_the_project_file_of_the_guide_names_its_entry_point() -> None:
    project = tomllib.loads(fenced("plugins.md", "pyproject.toml"))["project"]
    assert project["entry-points"]["slime.plugins"] == {"reward-exact": "slime_reward_exact"}
    assert project["dependencies"] == ["slime-core>=0.1,<0.2"]


def test_the_run_file_of_the_guide_selects_the_reward() -> None:
    assert tomllib.loads(fenced("plugins.md", "run.toml")) == {"reward": {"use": {"exact": 1.0}}}


def test_the_run_file_of_the_design_page_is_toml() -> None:
    text = (DOCS / "design" / "0004-run-file.md").read_text("utf-8")
    (block,) = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert tomllib.loads(block)["engine"] == {"use": "local", "local": {}, "sglang": {}}
