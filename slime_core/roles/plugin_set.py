"""PluginSet: which plugins a process loads, and in which order; plain data, so that every worker loads the same."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PluginSet:
    """What discovery is asked for. Plugins are named by distribution or entry point; a name nobody has is an error."""

    only: tuple[str, ...] | None = None
    """Load these alone (and the core's own), in this order; None: all that are installed."""
    without: tuple[str, ...] = ()
    """Leave these out."""
    require: tuple[str, ...] = ()
    """These first, in this order, and nothing runs unless they load; the others follow by distribution and name."""
    modules: tuple[str, ...] = ()
    """Plugin modules of the project, `./my_plugin.py` or dotted, loaded last, in this order."""
    expected: Mapping[str, str] = field(default_factory=dict)
    """Versions by plugin that another process of the run has loaded; a difference is an error."""
    root: Path | None = None
    """Where relative files of the project are looked for; None: the current directory."""
