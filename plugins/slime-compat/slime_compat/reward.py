"""SlimeReward and SlimeGroupReward: `await f(args, sample)` and, for `--group-rm`, `await f(args, samples)`.

slime takes whatever comes back, None and NaN included; here each has a name in the metrics.
"""

import math
from collections.abc import Sequence
from typing import cast

from slime_compat.arguments import Arguments
from slime_compat.function import load
from slime_compat.settings import RewardSettings
from slime_compat.slime_api.types import Sample as SlimeSample
from slime_core import Sample, Score, Unscored, Verdict
from slime_core.errors import ContractError
from slime_core.roles import RewardContext


class SlimeReward:
    """A reward around a function for `--custom-rm-path`."""

    def __init__(self, settings: RewardSettings, section: str = "reward.rm") -> None:
        """Load the function.

        Raises:
            PluginError: it cannot be called as slime calls it.
        """
        self._function = load(settings.path, ("args", "sample"), is_async=True)
        self._settings, self._section = settings, section

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """Its verdict on a copy of the sample."""
        args = _arguments(self._settings, self._section)
        returned = await self._function(args, SlimeSample.of(sample))  # type: ignore[misc]  # `async def`, as was seen when it was found
        return verdict_of(returned, self._settings.reward_key)


class SlimeGroupReward:
    """A group reward around a function for `--custom-rm-path` with `--group-rm`."""

    def __init__(self, settings: RewardSettings) -> None:
        """Load the function.

        Raises:
            PluginError: it cannot be called as slime calls it.
        """
        self._function = load(settings.path, ("args", "samples"), is_async=True)
        self._settings = settings

    async def __call__(self, samples: Sequence[Sample], ctx: RewardContext) -> list[Verdict]:
        """Its verdicts on copies of the samples.

        Raises:
            ContractError: not as many answers as samples; slime would leave the last ones without a reward.
        """
        args = _arguments(self._settings, "group_reward.group_rm")
        returned = await self._function(args, [SlimeSample.of(sample) for sample in samples])  # type: ignore[misc]  # `async def`, as was seen when it was found
        if not isinstance(returned, list | tuple) or len(returned) != len(samples):
            found = f"{len(returned)}" if isinstance(returned, list | tuple) else f"a {type(returned).__name__}"
            raise ContractError(f"{self._settings.path}: expected {len(samples)} rewards in a list, got {found}")
        return [verdict_of(each, self._settings.reward_key) for each in returned]


def verdict_of(returned: object, reward_key: str | None) -> Verdict:
    """What slime would take for a reward, as a verdict; what it should not have taken, as a reason."""
    components: dict[str, float] = {}
    if isinstance(returned, dict):
        table = cast("dict[str, object]", returned)
        if reward_key is None or reward_key not in table:
            return Unscored(f"dict_reward_without_reward_key_{reward_key or ''}".rstrip("_"))
        components = {
            key: float(value)
            for key, value in table.items()
            if key != reward_key and isinstance(value, int | float) and math.isfinite(value)
        }
        returned = table[reward_key]
    if returned is None:
        return Unscored("none_reward")
    if not isinstance(returned, int | float):
        return Unscored(f"{type(returned).__name__}_reward")
    if not math.isfinite(returned):
        return Unscored("nan_reward" if math.isnan(returned) else "infinite_reward")
    return Score(float(returned), components)


def _arguments(settings: RewardSettings, section: str) -> Arguments:
    return Arguments({"reward_key": settings.reward_key, "group_rm": False, **settings.args}, section)
