"""A plugin's project folder on the import path, with the metadata that its pyproject.toml would install.

Example:

    with as_if_installed(Path("slime-reward-mine")) as dist:
        check_plugin(dist)
"""

import contextlib
import importlib
import os
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from slime_core.errors import ConfigError
from slime_core.sample import Json
from slime_testing import offered, write_distribution

GROUP = "slime.plugins"


@contextlib.contextmanager
def as_if_installed(folder: Path) -> Iterator[str]:
    """Put a project on the import path of this process and of those that it starts; yields its name.

    Raises:
        ConfigError: the folder holds no pyproject.toml with a plugin, or not the module that it names.
    """
    project = _read_project(folder)
    name, entries = _entry_points(folder, project)
    source = _source_folder(folder, entries)
    before, variable = list(sys.path), os.environ.get("PYTHONPATH")
    with tempfile.TemporaryDirectory(prefix="slime-plugin-") as metadata:
        write_distribution(
            Path(metadata),
            name,
            {},
            entry_points=entries,
            contracts=_group(project, offered.GROUP),
            version=str(project.get("version", "0")),
            requires=_texts(project.get("dependencies", [])),
            readme=_readme(folder, project.get("readme")),
        )
        added = [metadata, str(source.resolve())]
        sys.path[:0] = added
        os.environ["PYTHONPATH"] = os.pathsep.join([*added, *([variable] if variable else [])])
        importlib.invalidate_caches()
        try:
            yield name
        finally:
            sys.path[:] = before
            if variable is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = variable


def _read_project(folder: Path) -> Mapping[str, Json]:
    file = folder / "pyproject.toml"
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8")).get("project")
    except OSError:
        raise ConfigError(f"{folder} has no pyproject.toml: give a plugin's project folder or a module file") from None
    except ValueError as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise ConfigError(f"{file} has no [project] table with a name")
    return table


def _entry_points(folder: Path, project: Mapping[str, Json]) -> tuple[str, dict[str, str]]:
    entries = _group(project, GROUP)
    if not entries:
        raise ConfigError(
            f'{folder / "pyproject.toml"} names no plugin: write [project.entry-points."{GROUP}"] NAME = "MODULE"'
        )
    return str(project["name"]), entries


def _group(project: Mapping[str, Json], group: str) -> dict[str, str]:
    """The entry points of a group."""
    groups = project.get("entry-points", {})
    entries = groups.get(group, {}) if isinstance(groups, dict) else {}
    return {name: str(value) for name, value in entries.items()} if isinstance(entries, dict) else {}


def _source_folder(folder: Path, entries: Mapping[str, str]) -> Path:
    """Where the plugin's modules are: in the project folder or in its src/."""
    tops = [value.partition(":")[0].partition(".")[0] for value in entries.values()]
    for place in (folder, folder / "src"):
        if all((place / f"{top}.py").is_file() or (place / top).is_dir() for top in tops):
            return place
    raise ConfigError(f"neither {folder} nor {folder / 'src'} holds {', '.join(tops)}, which its entry points name")


def _texts(value: Json) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def _readme(folder: Path, given: Json) -> str:
    match given:
        case str(file) | {"file": str(file)}:
            with contextlib.suppress(OSError):
                return (folder / file).read_text(encoding="utf-8")
        case {"text": str(text)}:
            return text
    return ""
