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

CORE = "slime-core"
"""The core's own plugin: always loaded, and first."""
GROUP = "slime.plugins"
"""The entry-point group."""


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
    candidates = []
    for entry in importlib.metadata.entry_points(group=GROUP):
        # Once: `dist.name` and `dist.version` parse the whole file each, a sixth of the time that discovery takes.
        about = entry.dist.metadata if entry.dist else None
        dist, version = (normalize(about["Name"]), about["Version"]) if about else ("", "")
        candidates.append(Candidate(entry.name, dist, version, entry.value, entry.load))
    return sorted(candidates, key=lambda each: (each.dist != CORE, each.dist, each.name, each.origin))


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
