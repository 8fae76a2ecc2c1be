"""What the project's own packages offer, the line that installs one, and the parts that they add to a run.

`first_party.json` lists what they offer, so an error can name a package that is not installed. Of any other plugin
only the naming rule is known: `slime-ROLE-NAME`.

Example:

    how_to_install("slime-local")       # "Install slime-local from a checkout of slime-core: pip install -e . ..."
    finetune = part("finetune", "slime-train", "finetuning")        # ConfigError: it names the package to install
"""

import difflib
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
"""Whose choices are the defaults of a run. A list of what may be loaded need not name them."""
PARTS = "slime.run"
"""Group of the entry points that offer parts of a run."""
_DATA = Path(__file__).with_name("first_party.json")


@dataclass(frozen=True, slots=True)
class FirstParty:
    """What one distribution of the checkout offers."""

    choices: Mapping[str, Sequence[str]]
    """Names by role."""
    flat_keys: Mapping[str, Sequence[str]]
    """The choices, `role/name`, that have each key; one that ends in `*` stands for all that begin so."""
    frameworks: Sequence[str]
    """Whose names for keys it knows."""
    commands: Mapping[str, str]
    """What it adds to `slime`, each with its line of help."""
    requires: Sequence[str]
    """Our other distributions that it requires."""


@functools.cache
def first_party() -> Mapping[str, FirstParty]:
    """All of them, by distribution."""
    return {dist: FirstParty(**each) for dist, each in json.loads(_DATA.read_text("utf-8")).items()}


def brought_by(role: str, name: str) -> str:
    """The first-party distribution that brings a choice, near misses included; "" if none."""
    plain = name.rpartition("/")[2].replace("-", "_").lower()
    owners = {other: dist for dist, each in first_party().items() for other in each.choices.get(role, ())}
    near = difflib.get_close_matches(plain, owners, n=1, cutoff=0.75)
    return owners[near[0]] if near else ""


def owner_of(role: str, name: str) -> str:
    """The first-party distribution that offers a choice of exactly that name; "" if none."""
    return next((dist for dist, each in first_party().items() if name in each.choices.get(role, ())), "")


def key_brought_by(key: str) -> tuple[str, Sequence[str]]:
    """The first-party distribution whose choices have a flat key, and those choices; "" if none."""
    for dist, each in first_party().items():
        for known, choices in each.flat_keys.items():
            if key == known or (known.endswith("*") and key.startswith(known[:-1])):
                return dist, choices
    return "", ()


def who_knows_foreign_names() -> tuple[str, Sequence[str]]:
    """The first-party distribution that knows what others call our keys, and whose names it knows."""
    dist, most = max(first_party().items(), key=lambda item: len(item[1].frameworks))
    return dist, most.frameworks


def command_brought_by(name: str) -> str:
    """The first-party distribution that adds a command to `slime`; "" if none."""
    return next((dist for dist, each in first_party().items() if name in each.commands), "")


def help_line(dist: str, command: str) -> str:
    """What `slime --help` says of a command of a distribution."""
    ours = first_party().get(dist)
    return ours.commands.get(command, "") if ours else f"from {dist}"


def is_ours(dist: str) -> bool:
    """Whether a distribution is of the checkout: on an index, anybody can have its name."""
    return dist == CORE or dist in first_party()


def how_to_install(dist: str) -> str:
    """The line to type."""
    if is_ours(dist):
        return f"Install {dist} from a checkout of slime-core: {_from_checkout(dist)}"
    return f"If that is its name, install it: {beside_this_core(dist)}"


def part_of(name: str, dist: str, wanted_by: str) -> EntryPoint:
    """The entry point of a part that a run cannot do without, not loaded.

    Args:
        name: of the entry point, in the group `slime.run`.
        dist: the first-party package that has it.
        wanted_by: what asks for it, such as a key.

    Raises:
        ConfigError: no package that is installed has it; it says what to install.
    """
    if (entry := entry_point_of(PARTS, name)) is None:
        raise ConfigError(f"{wanted_by} needs {dist}, which is not installed. {how_to_install(dist)}.")
    return entry


def part(name: str, dist: str, wanted_by: str) -> object:
    """A part that a run cannot do without, loaded; arguments and errors as of `part_of`."""
    found: object = part_of(name, dist, wanted_by).load()
    return found


def how_to_get(dist: str, version: str) -> str:
    """The line to type for one version of a distribution."""
    if is_ours(dist):
        return f"in a checkout of slime-core that has {dist} {version}, {_from_checkout(dist)}"
    return beside_this_core(f"'{dist}=={version}'")


def beside_this_core(requirement: str, options: str = "") -> str:
    """The line to type for what an index has. A version of it that wants another slime-core is refused by pip, which
    would else look for one on the index, where that name is another project's.
    """
    return f"pip install {options}{requirement} {CORE}=={slime_core.__version__}"


def _from_checkout(dist: str) -> str:
    return " ".join(["pip install -e .", *(f"-e ./plugins/{each}" for each in _with_required([dist]) if each != CORE)])


def _with_required(dists: Sequence[str]) -> Sequence[str]:
    required = [each for dist in dists if dist != CORE for each in first_party()[dist].requires]
    return dists if set(required) <= set(dists) else _with_required(list(dict.fromkeys([*required, *dists])))
