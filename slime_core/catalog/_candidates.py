"""Candidate: a plugin before it is loaded: an entry point of the group `slime.plugins`, or a module of the project.

Example:

    for candidate in installed_candidates():
        print(candidate.name, candidate.dist, candidate.version)        # from metadata; nothing is imported
"""

import importlib.metadata
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from slime_core.catalog._modules import import_project_module
from slime_core.catalog.status import PluginPhase, PluginState, PluginStatus
from slime_core.errors import PluginError

CORE = "slime-core"
"""The core's own plugin: always loaded, and first."""
GROUP = "slime.plugins"
"""The entry-point group."""
ENTRY_POINTS = "entry_points.txt"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plugin before it is loaded."""

    name: str
    """The entry point's name, or the module's as it was written."""
    dist: str
    """Normalized name of the distribution; empty for a module of the project."""
    version: str
    """The distribution's version; empty for a module of the project."""
    origin: str
    """The entry point's value, or the module's as it was written."""
    load: Callable[[], object]
    """Imports it."""

    @property
    def plugin(self) -> str:
        """What its choices are qualified by."""
        return self.dist or self.name

    def status(self, state: PluginState, phase: PluginPhase, detail: str = "") -> PluginStatus:
        """What became of it."""
        return PluginStatus(self.name, self.dist, self.version, self.origin, state, phase, detail)

    def __str__(self) -> str:
        return f"{self.plugin} {self.version}".rstrip()


def normalize(name: str) -> str:
    """A distribution's name in its one spelling (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_candidates() -> list[Candidate]:
    """Every entry point of the group: the core's, then by distribution and name."""
    try:
        candidates = list(map(_of_entry, importlib.metadata.entry_points(group=GROUP)))
    except Exception:  # one malformed entry_points.txt, of whatever package; Python does not say which
        candidates = [each for dist in importlib.metadata.distributions() for each in _of_distribution(dist)]
    return sorted(candidates, key=lambda each: (each.dist != CORE, each.dist, each.name, each.origin))


def _of_entry(entry: importlib.metadata.EntryPoint) -> Candidate:
    dist, version = _identity(entry.dist) if entry.dist else (entry.module, "")
    return Candidate(entry.name, dist, version, entry.value, entry.load)


def _of_distribution(dist: importlib.metadata.Distribution) -> list[Candidate]:
    """The plugins of one distribution; a single broken one if its entry points cannot be read."""
    try:
        return list(map(_of_entry, dist.entry_points.select(group=GROUP)))
    except Exception as error:
        if GROUP not in (dist.read_text(ENTRY_POINTS) or ""):
            return []
        why = f"its {ENTRY_POINTS} cannot be read ({error}): install it again"
        name, version = _identity(dist)
        return [Candidate(name, name, version, ENTRY_POINTS, partial(_refuse, why))]


def _refuse(why: str) -> object:
    raise PluginError(why)


def _identity(dist: importlib.metadata.Distribution) -> tuple[str, str]:
    """Normalized name and version; those of its folder where there is no metadata, as after half an uninstallation."""
    # Once: `dist.name` and `dist.version` parse the whole file each, a sixth of the time that discovery takes.
    about = dist.metadata
    if "Name" in about:
        return normalize(about["Name"]), about["Version"]
    name, _, version = Path(str(getattr(dist, "_path", "unknown"))).stem.partition("-")
    return normalize(name), version


def project_candidates(modules: Iterable[str], root: Path | None) -> list[Candidate]:
    """Plugin modules of the project, in the given order; relative files lie in `root`."""
    return [Candidate(text, "", "", text, partial(import_project_module, text, root)) for text in modules]


def is_plugin_module(text: str) -> bool:
    """Whether a name given as a plugin's is a module of the project, `./my_plugin.py` or `package.my_plugin`."""
    if text.endswith(".py") or "/" in text:
        return True
    if "." not in text:
        return False
    installed = {normalize(name) for each in installed_candidates() for name in (each.dist, each.name)}
    return normalize(text) not in installed
