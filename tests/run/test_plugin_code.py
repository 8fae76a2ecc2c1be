"""A plugin whose files changed under the same version is another plugin when a run is continued."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slime_core.config.plan import code_digest
from slime_testing.distribution import write_distribution
from tests.conftest import Project

PLUGIN = """
import slime_core
from slime_core import RewardSpec
from slime_letters.counting import share

SLIME_API = "1"


async def letters(sample, ctx):
    return slime_core.Score(share(sample.response))


@slime_core.hookimpl
def slime_rewards():
    return [RewardSpec.from_function("letters", letters)]
"""
COUNTING = "def share(text):\n    return sum(map(str.isalpha, text)) / max(1, len(text))\n"


def test_a_run_refuses_a_plugin_of_the_same_version_with_other_code(project: Project) -> None:
    site = project.root / "site"
    files = {
        "slime_letters/__init__.py": "",
        "slime_letters/plugin.py": PLUGIN,
        "slime_letters/counting.py": COUNTING,
    }
    write_distribution(site, "slime-letters", files, entry_points={"letters": "slime_letters.plugin"})
    project.write_run(num_rollout=1, reward={"use": "letters"})

    def slime(*arguments: object) -> tuple[int, str]:
        environment = {**os.environ, "PYTHONPATH": f"{site}", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "slime_core", *map(str, arguments), "--no-progress"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    code, said = slime("train", "run.toml")
    assert code == 0, said
    (site / "slime_letters" / "counting.py").write_text(COUNTING.replace("isalpha", "isdigit"))
    code, said = slime("resume", project.run, "--num-rollout", 2)
    assert code == 2
    assert "slime-letters 1.0 (reward/letters) has other code now, under the same version" in said
    assert "--accept-changed-plugins" in said
    code, said = slime("resume", project.run, "--num-rollout", 2, "--accept-changed-plugins")
    assert code == 0, said


def test_every_python_file_of_a_package_counts_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "letters_package" / "inner"
    inner.mkdir(parents=True)
    for file in (inner.parent / "__init__.py", inner / "__init__.py", inner / "deep.py"):
        file.write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    import letters_package.inner  # type: ignore[import-not-found]  # noqa: F401

    def digest() -> str:
        return code_digest(["letters_package.inner"])

    seen = [digest()]
    (inner / "deep.py").write_text("X = 1")
    seen.append(digest())
    (inner / "deep.py").rename(inner / "deeper.py")
    seen.append(digest())
    (inner / "data.txt").write_text("data")
    assert digest() == seen[-1]
    (inner.parent / "added.py").write_text("")
    seen.append(digest())
    assert len(set(seen)) == 4
    assert code_digest(["sys"]) == code_digest([]) == ""
