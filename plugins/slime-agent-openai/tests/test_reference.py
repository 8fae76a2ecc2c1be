import sys
from pathlib import Path

import pytest

from slime_agent_openai.reference import check, resolve
from tests.tables import table

AGENTS = Path(__file__).parent / "misbehaving_agents.py"


def test_module_is_checked_without_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("wth_package", "wth_folder/math"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "agents.py").write_text("raise RuntimeError\n\n\ndef solve(task):\n    return 1.0\n")
    (tmp_path / "wth_package/__init__.py").write_text("raise RuntimeError\n")
    monkeypatch.chdir(tmp_path)  # which is on no path
    check("wth_package.agents:solve")
    check("wth_folder.math.agents:solve")
    for name in ("wth_package.agents", "wth_folder.math.agents"):
        with pytest.raises(ValueError, match=r"agents\.py has no function 'slove'\. Did you mean 'solve'"):
            check(f"{name}:slove")
    assert not {"wth_package", "wth_folder"} & set(sys.modules)


@table("defined", ["def solve(task)", "async def solve(*tasks)", "def solve(task, more=1, *, and_=2)"])
def test_function_of_one_argument_is_accepted(tmp_path: Path, defined: str) -> None:
    (tmp_path / "mine.py").write_text(f"if True:\n    {defined}:\n        return 1.0\n")
    check(f"{tmp_path}/mine.py:solve")


@table("defined", ["def solve()", "async def solve(task, client)", "def solve(task, *, client)"])
def test_wrong_arity_is_refused_without_import(tmp_path: Path, defined: str) -> None:
    (tmp_path / "mine.py").write_text(f"raise RuntimeError\n{defined}:\n    return 1.0\n")
    said = r"mine\.py:2: solve\(.*\) does not take one argument\. .* write def solve\(task\)"
    with pytest.raises(ValueError, match=said):
        check(f"{tmp_path}/mine.py:solve")


@table(
    "source",
    [
        "solve = lambda task: 1.0",
        "from functools import partial\nsolve = partial(print, 1)",
        "try:\n    from mine_too import solve\nexcept ImportError:\n    solve = None",
        "with open('x') as file:\n    more, (solve, other) = file",
        "from mine_too import *",
        f"TEXT = {' + '.join(['TEXT'] * 2000)}\ndef solve(task): ...",
        "import functools\n@functools.cache\ndef solve(task, more): ...",
    ],
)
def test_undecidable_reference_is_left_to_the_worker(tmp_path: Path, source: str) -> None:
    (tmp_path / "mine.py").write_text(f"{source}\n")
    check(f"{tmp_path}/mine.py:solve")


@table(
    "source, said",
    [
        ("solve = [print]", r"solve of .* is not a function, but \["),
        ("async def solve(task):\n    yield 1.0", "solve of .* is a generator, so a call does not run it"),
        ("def solve(task):\n    yield 1.0", "solve of .* is a generator, so a call does not run it"),
        ("from shutil import move as solve", r"solve\(src, dst.*\) of .* does not take one argument"),
    ],
)
def test_worker_refuses_bad_function_on_import(tmp_path: Path, source: str, said: str) -> None:
    (tmp_path / "mine.py").write_text(f"{source}\n")
    check(f"{tmp_path}/mine.py:solve")
    with pytest.raises(ValueError, match=f"{said}.*write def solve"):
        resolve(f"{tmp_path}/mine.py:solve", takes_task=True)


@table(
    "reference, said",
    [
        ("agents.py", r"agent 'agents.py' does not name a function. Write ./agents.py:solve"),
        (f"{AGENTS}:9", "does not name a function"),
        (f"{AGENTS}", r"does not name a function. Write .*misbehaving_agents\.py:FUNCTION, like ./agents\.py:solve"),
        (f"{AGENTS}:eaten", "has no function 'eaten'"),
        (f"{AGENTS}:raisez", r"has no function 'raisez'\. Did you mean 'raises'\? It has gives_a_reward"),
        (
            f"{AGENTS.with_name('misbehaving_agent.py')}:raises",
            r"there is no file .*misbehaving_agent\.py\. Did you mean 'misbehaving_agents",
        ),
        ("slime_agent_openai.refernce:check", "there is no module 'slime_agent_openai.refernce'"),
        ("slime_agent_openai.reference:chekc", r"has no function 'chekc'\. Did you mean 'check'"),
        ("no_such_package.agents:solve", "there is no module 'no_such_package.agents'"),
    ],
)
def test_missing_reference_lists_alternatives(reference: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check(reference)
