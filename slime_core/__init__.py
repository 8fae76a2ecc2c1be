"""slime-core: post-train language models with RL, every part a plugin.

These are the names a plugin imports; roles live in `slime_core.roles`, hooks and events in `slime_core.hookspecs`.
"""

from typing import TYPE_CHECKING

from slime_core.lazy import exports, from_package

if TYPE_CHECKING:
    from slime_core.errors import SlimeError as SlimeError
    from slime_core.errors import StopRun as StopRun
    from slime_core.hookspecs import API_VERSION as API_VERSION
    from slime_core.hookspecs import hookimpl as hookimpl
    from slime_core.roles import RewardContext as RewardContext
    from slime_core.roles import RewardSpec as RewardSpec
    from slime_core.roles import Settings as Settings
    from slime_core.roles import Setup as Setup
    from slime_core.sample import Group as Group
    from slime_core.sample import GroupId as GroupId
    from slime_core.sample import Sample as Sample
    from slime_core.sample import Status as Status
    from slime_core.score import NotApplicable as NotApplicable
    from slime_core.score import Score as Score
    from slime_core.score import Unscored as Unscored
    from slime_core.score import Verdict as Verdict

    SlimeRunner: object
else:
    _get, __all__ = exports(__name__)

    def __getattr__(name: str) -> object:
        if name == "SlimeRunner":  # a plugin's, found when it is asked for
            return from_package("slime.runner", name, "slime-compat")
        return _get(name)


__version__ = "0.1.0"
