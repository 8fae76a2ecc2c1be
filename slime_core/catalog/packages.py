"""The project's own packages: their choices, the commands that install them, and the parts that they add to a run.

`first_party.json` lists their contents, so that an error can name a package that is not installed.

Example:

    install_advice("slime-local")       # "Install slime-local from a checkout of slime-core: pip install -e . ..."
    finetune = load_part("finetune", "slime-train", "finetuning")        # ConfigError: it names the package to install
"""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

import slime_core
from slime_core.errors import ConfigError
from slime_core.lazy import entry_point_of

CORE = "slime-core"
"""The core's own plugin: always loaded, and first."""
DEFAULTS = (CORE, "slime-train")
"""Plugins with the default choices of a run. An allow-list need not name them."""
PARTS = "slime.run"
"""Entry-point group of parts of a run."""
_DATA = Path(__file__).with_name("first_party.json")


@dataclass(frozen=True, slots=True)
class FirstParty:
    """Contents of one first-party distribution."""

    choices: Mapping[str, Sequence[str]]
    """Names of choices by role."""
    flat_keys: Mapping[str, Sequence[str]]
    """Choices, `role/name`, that have each key. A key that ends in `*` is a prefix."""
    frameworks: Sequence[str]
    """Frameworks whose key names it knows."""
    commands: Mapping[str, str]
    """Commands that it adds to `slime`, each with its help line."""
    requires: Sequence[str]
    """First-party distributions that it requires."""


@functools.cache
def first_party() -> Mapping[str, FirstParty]:
    """All first-party packages, by distribution."""
    return {dist: FirstParty(**each) for dist, each in json.loads(_DATA.read_text("utf-8")).items()}


def owner_package(role: str, name: str) -> str:
    """The first-party distribution that offers a choice; "" if none."""
    return next((dist for dist, each in first_party().items() if name in each.choices.get(role, ())), "")


def package_of_key(key: str) -> tuple[str, Sequence[str]]:
    """The first-party distribution whose choices have a flat key, and these choices; "" if none."""
    for dist, each in first_party().items():
        for known, choices in each.flat_keys.items():
            if key == known or (known.endswith("*") and key.startswith(known[:-1])):
                return dist, choices
    return "", ()


def package_of_foreign_names() -> tuple[str, Sequence[str]]:
    """The first-party distribution with other frameworks' names for our keys, and these frameworks."""
    dist, most = max(first_party().items(), key=lambda item: len(item[1].frameworks))
    return dist, most.frameworks


def package_of_command(name: str) -> str:
    """The first-party distribution that adds a command to `slime`; "" if none."""
    return next((dist for dist, each in first_party().items() if name in each.commands), "")


def help_line(dist: str, command: str) -> str:
    """Help line of a distribution's command in `slime --help`."""
    ours = first_party().get(dist)
    return ours.commands.get(command, "") if ours else f"from {dist}"


def is_first_party(dist: str) -> bool:
    """Whether a distribution is first-party. On an index, its name may belong to another project."""
    return dist == CORE or dist in first_party()


def install_advice(dist: str) -> str:
    """The install command to type."""
    if is_first_party(dist):
        return f"Install {dist} from a checkout of slime-core: {_from_checkout(dist)}"
    return f"If that is its name, install it: {pip_command(dist)}"


def find_part(name: str, dist: str, wanted_by: str) -> EntryPoint:
    """The entry point, not loaded, of a part that a run requires.

    Args:
        name: name of the entry point, in the group `slime.run`.
        dist: the first-party package that provides it.
        wanted_by: what requires it, such as a key.

    Raises:
        ConfigError: no installed package provides it; the message names the package to install.
    """
    if (entry := entry_point_of(PARTS, name)) is None:
        raise ConfigError(f"{wanted_by} needs {dist}, which is not installed. {install_advice(dist)}.")
    return entry


def load_part(name: str, dist: str, wanted_by: str) -> object:
    """Load a part that a run requires; arguments and errors as in `find_part`."""
    found: object = find_part(name, dist, wanted_by).load()
    return found


def version_advice(dist: str, version: str) -> str:
    """The install command for one version of a distribution."""
    if is_first_party(dist):
        return f"in a checkout of slime-core that has {dist} {version}, {_from_checkout(dist)}"
    return pip_command(f"'{dist}=={version}'")


def pip_command(requirement: str, options: str = "") -> str:
    """The install command for a package from an index. It lets pip reject a version that requires another slime-core;
    otherwise pip would look for slime-core on the index, where the name belongs to another project.
    """
    return f"pip install {options}{requirement} {CORE}=={slime_core.__version__}"


def _from_checkout(dist: str) -> str:
    return " ".join(["pip install -e .", *(f"-e ./plugins/{each}" for each in _with_required([dist]) if each != CORE)])


def _with_required(dists: Sequence[str]) -> Sequence[str]:
    required = [each for dist in dists if dist != CORE for each in first_party()[dist].requires]
    return dists if set(required) <= set(dists) else _with_required(list(dict.fromkeys([*required, *dists])))
