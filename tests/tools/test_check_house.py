"""House rules that `make lint` reads from files: each finds the file that breaks it."""

from pathlib import Path

from tests.tools.repository import run_tool, write

CORE = '[project]\nversion = "0.1.0"\ndependencies = ["click>=8", "pluggy>=1", "pydantic>=2", "{}>=4"]\n'
PLUGIN = '[project]\nversion = "{}"\ndependencies = ["{}"]\n'
CHECKOUT = {
    "CONTRIBUTING.md": "slime_core/\n  sample.py  the vocabulary\n  catalog/   finds plugins\n",
    "pyproject.toml": CORE.format("typing-extensions"),
    "changelog/+a-word.added.md": "A word.\n",
    "slime_core/__init__.py": '"""The core."""\n\n__version__ = "0.1.0"\n',
    "slime_core/sample.py": '"""A sample."""\n\n__all__ = ["Sample"]\n',
    "slime_core/catalog/__init__.py": (
        '"""Finds plugins."""\n\nfrom slime_core import sample\n\n__getattr__, __all__ = exports(__name__)\n'
    ),
    "plugins/slime-a/pyproject.toml": PLUGIN.format("0.1.0", "slime-core>=0.1,<0.2"),
    "plugins/slime-a/slime_a/__init__.py": '"""A plugin."""\n\nfrom slime_a import _b\n',
    "plugins/slime-a/slime_a/_b.py": '"""A part."""\n\nx = len(1)  # type: ignore[arg-type]  # to see it fail\n',
    "plugins/slime-b/pyproject.toml": PLUGIN.format("0.1.0", "slime-core==0.1.0"),
    "tests/slow.txt": "# slow\nCONTRIBUTING.md\npyproject.toml\n",
}
BROKEN = (
    ("slime_core/sample.py", "", "slime_core/sample.py:1: no docstring"),
    ("slime_core/lazy.py", "x = 1\n", "slime_core/lazy.py:1: no docstring"),
    ("plugins/slime-a/slime_a/_b.py", '""""""\n', "plugins/slime-a/slime_a/_b.py:1: no docstring"),
    ("slime_core/sample.py", '"""A."""\n__all__ = sorted({"b", "a"})\n', "slime_core/sample.py:2: __all__ is computed"),
    (
        "slime_core/sample.py",
        '"""A."""\nif x:\n    get, __all__ = names(__name__)\n',
        "slime_core/sample.py:3: __all__ is computed",
    ),
    ("slime_core/sample.py", '"""A."""\nx = 1  # type: ignore\n', "slime_core/sample.py:2: type: ignore: add why"),
    (
        "plugins/slime-a/slime_a/_b.py",
        '"""A."""\nx = len(1)  # type: ignore[arg-type]  # noqa: X1\ny = 2\n',
        "plugins/slime-a/slime_a/_b.py:2: type: ignore[arg-type]  # noqa: X1: add why",
    ),
    ("slime_core/catalog/__init__.py", '"""Finds\n\nRay."""\n', "slime_core/catalog/__init__.py:3: names Ray"),
    (
        "slime_core/sample.py",
        '"""A."""\n\n\ndef find():\n    from slime_core import catalog\n',
        "slime_core.sample: in a circle of imports, through slime_core.catalog",
    ),
    (
        "plugins/slime-a/slime_a/_b.py",
        '"""A."""\nimport slime_a\n',
        "slime_a._b: in a circle of imports, through slime_a",
    ),
    ("pyproject.toml", CORE.format("numpy"), "pyproject.toml: requires another package numpy"),
    ("pyproject.toml", CORE.format("numpy"), "pyproject.toml: no longer requires typing-extensions"),
    ("slime_core/__init__.py", '"""A."""\n__version__ = "0.2.0"\n', "slime_core/__init__.py: __version__ is not 0.1.0"),
    (
        "plugins/slime-a/pyproject.toml",
        PLUGIN.format("0.2.0", "slime-core>=0.1,<0.2"),
        "plugins/slime-a/pyproject.toml: version 0.2.0",
    ),
    (
        "plugins/slime-a/pyproject.toml",
        PLUGIN.format("0.1.0", "slime-core"),
        "plugins/slime-a/pyproject.toml: does not require slime-core>=0.1,<0.2",
    ),
    ("slime_core/score.py", '"""A score."""\n', "CONTRIBUTING.md: the map of slime_core lacks score.py"),
    ("slime_core/run/__init__.py", '"""A run."""\n', "CONTRIBUTING.md: the map of slime_core lacks run/"),
    (
        "CONTRIBUTING.md",
        "slime_core/\n  sample.py score.py  the vocabulary\n  catalog/   finds plugins\n",
        "CONTRIBUTING.md: the map names score.py",
    ),
    ("changelog/a-word.added.md", "", "changelog/a-word.added.md: no fragment"),
    ("tests/slow.txt", "pyproject.toml\nCONTRIBUTING.md\n", "tests/slow.txt: sort the list"),
    ("tests/slow.txt", "CONTRIBUTING.md\nCONTRIBUTING.md\n", "tests/slow.txt: sort the list"),
    ("tests/slow.txt", "gone.py\n", "tests/slow.txt: gone.py does not exist"),
)


def checked(root: Path, files: dict[str, str]) -> tuple[int, str]:
    write(root, files)
    done = run_tool("check_house.py", "--root", root)
    assert not done.stderr
    return done.returncode, done.stdout


def test_a_checkout_that_breaks_no_rule_passes(tmp_path: Path) -> None:
    assert checked(tmp_path, CHECKOUT) == (0, "no house rule is broken\n")


def test_each_broken_rule_is_found_with_its_file(tmp_path: Path) -> None:
    wrong = []
    for number, (name, text, finding) in enumerate(BROKEN):
        status, printed = checked(tmp_path / str(number), {**CHECKOUT, name: text})
        if status != 1 or not any(line.startswith(finding) for line in printed.splitlines()):
            wrong.append(f"expected {finding!r}, exit status 1; got {status}:\n{printed}")
    assert not wrong, "\n".join(wrong)


def test_a_circle_is_found_across_packages_and_what_leads_into_it_is_not(tmp_path: Path) -> None:
    outside = {
        "slime_core/sample.py": '"""A sample."""\nimport slime_a._b\n',
        "plugins/slime-a/slime_a/_b.py": '"""A part."""\nfrom slime_core.sample import Sample\nimport slime_b\n',
        "plugins/slime-b/slime_b/__init__.py": '"""A plugin."""\n',
    }
    status, printed = checked(tmp_path, {**CHECKOUT, **outside})
    assert status == 1
    assert printed.splitlines() == [
        "slime_a._b: in a circle of imports, through slime_core.sample",
        "slime_core.sample: in a circle of imports, through slime_a._b",
    ]
