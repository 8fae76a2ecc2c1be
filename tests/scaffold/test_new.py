"""`slime plugins new`: what it writes, what it says, what it refuses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tables import table

ROOT = Path(__file__).resolve().parents[2]
Slime = Callable[..., Any]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_writes_a_package_and_says_what_to_type_next(slime: Slime, tmp_path: Path) -> None:
    ran = slime("plugins", "new", "reward", "keywords")
    assert ran.code == 0, ran.err
    assert (tmp_path / "slime-reward-keywords" / "slime_reward_keywords" / "plugin.py").is_file()
    assert ran.out.splitlines() == [
        "wrote slime-reward-keywords: share of the label's words that the response contains",
        "",
        "next:",
        "",
        "  cd slime-reward-keywords",
        f"  pip install -e {ROOT} -e '.[test]'",
        "  pytest",
        "",
        "Its CI needs the slime.txt of a release: the new one contains paths of this machine.",
    ]


def test_it_writes_into_another_folder_which_is_made(slime: Slime, tmp_path: Path) -> None:
    ran = slime("plugins", "new", "buffer-filter", "fresh", "--into", "my plugins/here", "--license", "mit")
    assert ran.code == 0, ran.err
    assert "cd 'my plugins/here/slime-buffer-filter-fresh'" in ran.out
    assert "MIT License" in (tmp_path / "my plugins/here/slime-buffer-filter-fresh/LICENSE").read_text()


@table(
    "arguments, said",
    [
        (("rewards", "mine"), "no role 'rewards'. Did you mean 'reward'?"),
        (("reward", "Mine"), "such as 'mine'"),
        (("reward", "math"), "slime-reward-math 0.1.0 is already installed"),
        (("reward", "random"), "reward 'random' is a choice of slime-reward-math: use another name"),
        (("buffer", "fifo"), "buffer 'fifo' is a choice of slime-core: use another name"),
    ],
)
def test_bad_input_writes_nothing(slime: Slime, tmp_path: Path, arguments: tuple[str, str], said: str) -> None:
    ran = slime("plugins", "new", *arguments)
    assert ran.code == 2
    assert said in " ".join(ran.err.split())
    assert list(tmp_path.iterdir()) == []
