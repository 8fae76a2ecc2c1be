"""PluginStatus: what became of one plugin at discovery. A broken one is a status and a warning, not a crash.

    for status in catalog.statuses:
        print(status)                   # plugin slime-reward-math 0.1.0 (slime_reward_math.plugin): loaded

`SLIME_PLUGINS_STRICT=1` turns the warning into an error.
"""

import enum
from dataclasses import dataclass


class PluginWarning(UserWarning):
    """A plugin was not loaded; its choices do not exist."""


class PluginDeprecation(FutureWarning):
    """A plugin uses what a later release will not have; it works as before."""


class PluginState(enum.Enum):
    """How discovery ended for a plugin."""

    LOADED = "loaded"
    """Its choices and hooks are in use."""
    BROKEN = "broken"
    """Its own code raised."""
    REFUSED = "refused"
    """It breaks a rule of the catalog."""
    EXCLUDED = "excluded"
    """The user left it out; nothing of it was imported."""


class PluginPhase(enum.Enum):
    """How far discovery came with a plugin."""

    SELECTION = "selection"
    """Before anything of it is imported: what the user asked for, and the entry point's name."""
    IMPORT = "import"
    """Importing its module."""
    API = "api"
    """Comparing its SLIME_API with the core's."""
    HOOKS = "hooks"
    """Checking the names and arguments of its hooks."""
    SPECS = "specs"
    """Collecting what its provider hooks yield."""
    DONE = "done"
    """Everything."""


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """One plugin: who it is and what became of it."""

    name: str
    """Its entry point's name, or the module's for a plugin of the project."""
    dist: str
    """The distribution that it came with; empty for a plugin of the project."""
    version: str
    """The distribution's version; empty for a plugin of the project."""
    origin: str
    """What was imported: the entry point's value, or the path."""
    state: PluginState
    """How discovery ended."""
    phase: PluginPhase
    """Where it ended."""
    detail: str = ""
    """What is wrong and what to do; empty when loaded."""

    @property
    def plugin(self) -> str:
        """What its choices are qualified by: `plugin/name`."""
        return self.dist or self.name

    @property
    def failed(self) -> bool:
        """Whether it should have been loaded and is not."""
        return self.state in (PluginState.BROKEN, PluginState.REFUSED)

    def __str__(self) -> str:
        version = f" {self.version}" if self.version else ""
        what = f"{self.state.value} ({self.phase.value}): {self.detail}" if self.detail else self.state.value
        return f"plugin {self.plugin}{version} ({self.origin}): {what}"
