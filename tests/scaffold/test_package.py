"""Every scaffolded package, as text: complete, valid, typed and formatted, whatever its name."""

import configparser
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from slime_core.config import parse_config
from slime_core.errors import ConfigError
from slime_core.roles import SELECTABLE
from slime_testing import ALL_CHECKS
from slime_testing.scaffold import KINDS, License, Names, render, write_package
from tests.tables import table

SHORT, LONG = "x", "forty-characters-are-a-rather-long-name"
EACH = table("kind", list(KINDS))


@EACH
def test_the_project_file_names_the_plugin_and_bounds_the_core(kind: str) -> None:
    names = Names.parse(kind, "mine")
    project = tomllib.loads(render(names, License.MIT)["pyproject.toml"])["project"]
    assert project["name"] == f"slime-{kind}-mine"
    assert project["entry-points"]["slime.plugins"] == {f"{kind}-mine": f"{names.module}.plugin"}
    ours = {"slime-train": "slime-train>=0.1,<0.2"}
    assert project["dependencies"] == ["slime-core>=0.1,<0.2", *(ours.get(each, each) for each in KINDS[kind].requires)]
    assert project["optional-dependencies"] == {"test": ["pytest>=8.4", "slime-testing>=0.1,<0.2"]}
    assert project["license"] == "MIT"


@EACH
def test_the_checks_that_it_names_are_those_of_the_kit(kind: str) -> None:
    text = render(Names.parse(kind, "mine"), License.MIT)["tests/test_plugin.py"]
    assert set(re.findall(r"[A-Z]{3}-\d{3}", text)) <= set(ALL_CHECKS)


@EACH
def test_its_class_is_called_after_it_and_its_tests_name_none(kind: str) -> None:
    """An author who renames a class renames it in one file."""
    names = Names.parse(kind, "quite-good")
    texts = render(names, License.MIT)
    own = "".join(text for path, text in texts.items() if path.startswith(names.module))
    classes = re.findall(r"^class (\w+)", own, re.MULTILINE)
    assert "QuiteGood" in classes or kind.endswith("hooks")
    assert not set(classes) & set(re.findall(r"\w+", texts["tests/test_plugin.py"]))


@table("name", ["sample", "score", "setup", "unscored", "keyword"])
def test_its_class_shadows_nothing(name: str) -> None:
    text = render(Names.parse("reward", name), License.MIT)[f"slime_reward_{name.replace('-', '_')}/plugin.py"]
    imported = {each for line in re.findall(r"^from \S+ import (.*)", text, re.MULTILINE) for each in line.split(", ")}
    assert not set(re.findall(r"^class (\w+)", text, re.MULTILINE)) & imported


@EACH
def test_the_readme_says_how_a_run_selects_it(kind: str) -> None:
    """The run file's part in the README is one that a run accepts."""
    readme = render(Names.parse(kind, "mine"), License.MIT)["README.md"]
    role = KINDS[kind].key
    blocks = re.findall(r"^```toml\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    if role not in SELECTABLE:
        assert blocks == []
        return
    (block,) = blocks
    given = tomllib.loads(block)
    assert list(given) == [role]
    needed = {"hf_checkpoint": "model", "save": "run", "prompt_data": "rows.jsonl", "num_rollout": 1}
    reward = {} if role in ("reward", "group_reward") else {"reward": {"use": "math"}}
    selection = parse_config({**needed, **reward, **given}).roles[role]
    assert list(selection.use) == ["mine"]
    assert list(selection.sections) == ["mine"]


def test_the_workflow_keeps_its_own_dollar_signs() -> None:
    texts = render(Names.parse("reward", "mine"), License.MIT)
    called = texts[".github/workflows/plugin-contracts.yml"]
    assert "python-version: ${{ matrix.python }}" in called
    assert called == (Path(__file__).parents[2] / ".github/workflows/plugin-contracts.yml").read_text("utf-8")
    assert "uses: ./.github/workflows/plugin-contracts.yml" in texts[".github/workflows/ci.yml"]
    assert "plugin: slime-reward-mine" in texts[".github/workflows/ci.yml"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every package twice, with a short and with a long name, side by side."""
    folder = tmp_path_factory.mktemp("packages")
    for kind in KINDS:
        for name in (SHORT, LONG):
            names = Names.parse(kind, name)
            write_package(render(names, License.MIT), folder / names.dist)
    return folder


def test_every_package_is_clean_to_its_own_ruff_settings_and_to_stricter_ones(written: Path) -> None:
    ruff = str(Path(sys.executable).with_name("ruff"))
    stricter = "--extend-select=A,ANN,ASYNC,B,C4,D1,E,I,N,PIE,PT,RET,RUF,SIM,UP,W"
    # Workers answer any exception, shapes are part of tensors' names, the kit annotates a contract's attributes.
    ignored = "--ignore=BLE001,D107,N803,N806,RUF012"
    checked = _run([ruff, "check", "--no-cache", stricter, ignored, "."], written)
    assert checked.returncode == 0, checked.stdout
    formatted = _run([ruff, "format", "--no-cache", "--diff", "."], written)
    assert formatted.returncode == 0, formatted.stdout


def test_every_package_is_strictly_typed(written: Path, tmp_path: Path) -> None:
    """In one run of mypy, so that it reads the core once; tests get names of their own for that."""
    for package in written.glob(f"slime-*-{SHORT}"):
        module = package.name.replace("-", "_")
        (package / module).rename(tmp_path / module)
        (package / "tests" / "test_plugin.py").rename(tmp_path / f"test_{module}.py")
    config = configparser.ConfigParser()
    config["mypy"] = {"strict": "true", "cache_dir": "/dev/null"}
    config["mypy-torch.*"] = {"follow_imports": "skip"}  # reading torch takes minutes
    with (tmp_path / "mypy.ini").open("w", encoding="utf-8") as file:
        config.write(file)
    checked = _run([sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "."], tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    texts = render(Names.parse("reward", "mine"), License.MIT)
    (tmp_path / "README.md").write_text("my own")
    with pytest.raises(ConfigError, match=r"already exists, with README\.md: use another name, or --force"):
        write_package(texts, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text() == "my own"


def test_force_replaces_its_own_files_and_leaves_the_others(tmp_path: Path) -> None:
    texts = render(Names.parse("reward", "mine"), License.MIT)
    (tmp_path / "README.md").write_text("my own")
    (tmp_path / "notes.md").write_text("my own")
    write_package(texts, tmp_path, force=True)
    assert (tmp_path / "README.md").read_text() == texts["README.md"]
    assert (tmp_path / "notes.md").read_text() == "my own"


def test_a_folder_that_cannot_be_written_is_named(read_only_folder: Path) -> None:
    with pytest.raises(ConfigError, match=f"cannot write {read_only_folder}/new: "):
        write_package({"a.txt": "text"}, read_only_folder / "new")


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
