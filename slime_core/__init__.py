"""slime-core: post-train language models with RL, every part a plugin.

These are the names a plugin imports; roles live in `slime_core.roles`, hooks and events in `slime_core.hookspecs`.
"""

from typing import TYPE_CHECKING

from slime_core._lazy import exports, from_package

if TYPE_CHECKING:
    from slime_core.errors import SlimeError, StopRun
    from slime_core.hookspecs import API_VERSION, hookimpl
    from slime_core.roles import RewardContext, RewardSpec, Settings, Setup
    from slime_core.sample import Group, GroupId, Sample, Status
    from slime_core.score import NotApplicable, Score, Unscored, Verdict

_HOMES = {
    "slime_core.errors": "SlimeError StopRun",
    "slime_core.hookspecs": "API_VERSION hookimpl",
    "slime_core.roles": "RewardContext RewardSpec Settings Setup",
    "slime_core.sample": "Group GroupId Sample Status",
    "slime_core.score": "NotApplicable Score Unscored Verdict",
}

_get = exports(__name__, _HOMES)


def __getattr__(name: str) -> object:
    if name == "SlimeRunner":  # a plugin's, found when it is asked for
        return from_package("slime.runner", name, "slime-compat")
    return _get(name)


__version__ = "0.1.0"

__all__ = [
    "API_VERSION",
    "Group",
    "GroupId",
    "NotApplicable",
    "RewardContext",
    "RewardSpec",
    "Sample",
    "Score",
    "Settings",
    "Setup",
    "SlimeError",
    "Status",
    "StopRun",
    "Unscored",
    "Verdict",
    "hookimpl",
]
