"""PluginSet: which plugins a process loads, and in which order; plain data, so that every worker loads the same."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PluginSet:
    """Plugins to load, named by distribution or entry point. An unknown name is an error."""

    only: tuple[str, ...] | None = None
    """Load only these (and the core's own), in this order; None: all installed plugins."""
    without: tuple[str, ...] = ()
    """Do not load these."""
    require: tuple[str, ...] = ()
    """Required plugins, loaded first in this order. The others follow by distribution and name."""
    modules: tuple[str, ...] = ()
    """Plugin modules of the project, `./my_plugin.py` or dotted, loaded last, in this order."""
    expected: Mapping[str, str] = field(default_factory=dict)
    """Versions by plugin in another process of the run; a difference is an error."""
    root: Path | None = None
    """Base directory of the project's relative paths; None: the current directory."""
