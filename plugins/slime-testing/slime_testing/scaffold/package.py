"""The package on disk: templates filled in, and written whole or not at all.

Templates are plain files beside this module, filled in by `string.Template`; every `$word` in them is a key of
`_words`, and one without a value is an error.
"""

import enum
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from string import Template

from slime_core import __version__
from slime_core.catalog import first_party
from slime_core.errors import ConfigError
from slime_testing.scaffold.names import Names
from slime_testing.scaffold.origin import constraints

_TEMPLATES = files("slime_testing.scaffold") / "templates"


class License(enum.Enum):
    """Under which terms the author gives the plugin away."""

    APACHE_2_0 = "Apache-2.0"
    """As slime-core itself."""
    MIT = "MIT"
    """The shortest one."""


def render(names: Names, license_: License) -> dict[str, str]:
    """Text of every file of the package, by its path in it."""
    words = _words(names, license_)
    own = names.kind.key
    words["class_name"] = _unused(names, own)
    words["about"] = _fill(f"{own}/about.md.tmpl", words)
    modules = sorted(each.name for each in (_TEMPLATES / own).iterdir() if each.name.endswith(".py.tmpl"))
    sources = {
        "pyproject.toml": "common/pyproject.toml.tmpl",
        "README.md": "common/README.md.tmpl",
        "CHANGELOG.md": "common/CHANGELOG.md.tmpl",
        "LICENSE": f"licenses/{license_.value}.txt",
        ".gitignore": "common/gitignore.tmpl",
        ".github/workflows/ci.yml": "common/ci.yml.tmpl",
        ".github/workflows/plugin-contracts.yml": "common/plugin-contracts.yml.tmpl",
        f"{names.module}/__init__.py": "common/init.py.tmpl",
    }
    for module in modules:
        folder = "tests" if module.startswith("test_") else names.module
        sources[f"{folder}/{module.removesuffix('.tmpl')}"] = f"{own}/{module}"
    made = {f"{names.module}/py.typed": "", "slime.txt": constraints()}
    return {path: _fill(source, words) for path, source in sources.items()} | made


def write_package(texts: Mapping[str, str], folder: Path, *, force: bool = False) -> None:
    """Write the files into `folder`, which is made.

    Args:
        texts: what `render` returned.
        folder: where to; its parents are made too.
        force: whether files that are there already are replaced; others stay.

    Raises:
        ConfigError: something is there and `force` is not given, or the folder cannot be written.
    """
    try:
        if not force and (there := sorted(_names_in(folder))):
            shown = ", ".join(there[:5]) + (", …" if len(there) > 5 else "")
            raise ConfigError(f"{folder} is there already, with {shown}: another name, or --force to write over it")
        for path, text in texts.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename or folder}: {error.strerror}") from error


def _names_in(folder: Path) -> Iterable[str]:
    return (each.name for each in folder.iterdir()) if folder.exists() else ()


def _unused(names: Names, own: str) -> str:
    """Its class's name; with the role behind it where the templates have something else of that name."""
    texts = [each.read_text(encoding="utf-8") for each in (_TEMPLATES / own).iterdir()]
    role = "".join(each.capitalize() for each in names.kind.word.split("-"))
    taken = {word for text in texts for word in re.findall(r"\w+", text)}
    made = names.class_name
    return made + role if {made, f"{made}Settings"} & taken else made


def _words(names: Names, license_: License) -> dict[str, str]:
    """What templates may say."""
    return {
        "dependencies": _listed(_requirement("slime-core"), *map(_bounded, names.kind.requires)),
        "dist": names.dist,
        "entry_point": names.entry_point,
        "kind": names.kind.key.replace("_", " "),
        "license": license_.value,
        "module": names.module,
        "name": names.name,
        "summary": names.kind.summary,
        "test_dependencies": _listed("pytest>=8.4", _requirement("slime-testing")),
        "year": str(datetime.now(UTC).year),
    }


def _listed(*requirements: str) -> str:
    """The items of a list in TOML."""
    return ", ".join(f'"{each}"' for each in requirements)


def _bounded(requirement: str) -> str:
    """A requirement of the kind; packages of slime-core are bounded as the core is."""
    return _requirement(requirement) if requirement in first_party() else requirement


def _requirement(dist: str, version: str = __version__) -> str:
    """A package of the core's series: 0.1.x, or 2.x from the first stable release on."""
    major, minor = map(int, version.split(".")[:2])
    if major:
        return f"{dist}>={major}.{minor},<{major + 1}"
    return f"{dist}>=0.{minor},<0.{minor + 1}"


def _fill(source: str, words: Mapping[str, str]) -> str:
    template = _TEMPLATES.joinpath(*source.split("/")).read_text(encoding="utf-8")
    return Template(template).substitute(words)
