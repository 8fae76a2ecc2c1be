"""A command of another package is listed with its own line of help, and nothing of it is imported for that."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from slime_core.cli.main import help_line
from tests.tables import table


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "its_package"
    (made / "inner").mkdir(parents=True)
    for each in (made, made / "inner"):
        (each / "__init__.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    return made / "inner"


def line(module: str, attr: str = "run") -> str:
    return help_line(EntryPoint("run", f"{module}:{attr}", "slime.commands"))


def test_it_is_the_first_sentence_of_the_function(package: Path) -> None:
    (package / "command.py").write_text(
        'raise RuntimeError("imported")\n\n@decorated(1)\ndef run(a):\n    """Runs it all.\n\n    More of it."""\n'
    )
    assert line("its_package.inner.command") == "Runs it all."
    assert not {"its_package", "its_package.inner"} & sys.modules.keys()


@table("source", ["def run(): pass\n", "def other():\n    'Other.'\n", "run = 3\n", "def run(:\n"])
def test_where_the_source_does_not_say_there_is_none(package: Path, source: str) -> None:
    (package / "command.py").write_text(source)
    assert line("its_package.inner.command") == ""


@table("module", ["no_such_package", "its_package.nothing", "sys", "json.decoder.more"])
def test_nor_where_there_is_no_source(package: Path, module: str) -> None:
    assert line(module) == ""
