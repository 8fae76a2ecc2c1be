"""SlimeRewardPostProcess: `f(args, samples) -> (raw_rewards, rewards)` as a reward shaper.

Example:

    [reward_shaper]
    use = "post_process"
    post_process.path = "my_package.rewards.normalise"
"""

from collections.abc import Sequence

from slime_compat.arguments import Arguments
from slime_compat.function import load
from slime_compat.settings import FunctionSettings
from slime_compat.slime_api.types import Sample as SlimeSample
from slime_core import Group
from slime_core.errors import ContractError
from slime_core.roles import ShapeContext


class SlimeRewardPostProcess:
    """A reward shaper around a function for `--custom-reward-post-process-path`."""

    def __init__(self, settings: FunctionSettings) -> None:
        """Load the function.

        Raises:
            PluginError: it cannot be called as slime calls it.
        """
        self._function = load(settings.path, ("args", "samples"), is_async=False)
        self._args = Arguments(settings.args, "reward_shaper.post_process")
        self._path = settings.path

    def __call__(self, groups: Sequence[Group], ctx: ShapeContext) -> list[list[float | None]]:
        """The second of the two lists, in the groups' shape; samples without a reward are not shown to it.

        Raises:
            ContractError: not two lists, or not one reward a sample.
        """
        flat: list[SlimeSample] = []
        for group, row in zip(groups, ctx.rewards, strict=True):
            for sample, reward in zip(group.samples, row, strict=True):
                if reward is not None:
                    flat.append(SlimeSample.of(sample))
                    flat[-1].reward = reward
        returned = self._function(self._args, flat)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise ContractError(f"{self._path} returned {type(returned).__name__}; expected (raw_rewards, rewards)")
        raw, shaped = (list(each) for each in returned)
        if not len(raw) == len(shaped) == len(flat):
            raise ContractError(
                f"{self._path}: {len(flat)} samples, {len(raw)} raw rewards, {len(shaped)} rewards; all must agree"
            )
        numbers = iter(float(each) for each in shaped)
        return [[None if reward is None else next(numbers) for reward in row] for row in ctx.rewards]
