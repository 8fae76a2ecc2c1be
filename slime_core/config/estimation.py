"""Estimation: does the advantage estimator get what it compares? Groups of several samples, and rewards by name.

Example:

    check_estimation(config, roles)      # ConfigError: n_samples_per_prompt = 1 leaves "grpo" nothing to compare
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from slime_core.catalog import did_you_mean
from slime_core.errors import ConfigError
from slime_core.roles import AdvantageSpec, LossSpec
from slime_core.sample import SCORE

if TYPE_CHECKING:
    from slime_core.config.plan import Chosen
    from slime_core.config.run_config import RunConfig

SCORED_BY_REWARDS = "slime-core/single_turn"
"""The generator that is known not to score samples itself, in which case a reward may have any parts."""


def check_estimation(config: "RunConfig", roles: "Mapping[str, Sequence[Chosen]]") -> None:
    """See that a run that trains by rewards can tell samples apart.

    Raises:
        ConfigError: the estimator compares samples of a group and groups are of one, or it reads a reward that is not
            chosen.
    """
    if config.finetunes or config.debug.debug_rollout_only:
        return
    (estimator,) = roles["advantage"]
    spec = cast(AdvantageSpec, estimator.registered.spec)
    (loss,) = roles["loss"]
    of_advantages = cast(LossSpec, loss.registered.spec).zero_without_advantage(loss.settings)
    others = config.distillation.use_opd or config.reference.kl_loss_coef
    alone = config.rollout.n_samples_per_prompt == 1 and spec.compares_samples(estimator.settings)
    if alone and of_advantages and not others:
        raise ConfigError(
            f"n_samples_per_prompt = 1: advantage {estimator.reference!r} compares the samples of a prompt, and one "
            "alone would teach nothing; give 2 or more, or choose an estimator that compares none "
            '(advantage_estimator = "reinforce_plus_plus" or "ppo")'
        )
    if [each.registered.qualified for each in roles["generator"]] == [SCORED_BY_REWARDS]:
        rewards = [each.reference for role in ("reward", "group_reward") for each in roles[role]]
        for part in spec.reward_keys(estimator.settings):
            if part != SCORE and not any(part == each or part.startswith(f"{each}/") for each in rewards):
                raise ConfigError(
                    f"advantage {estimator.reference!r} reads a reward {part!r} that is not chosen; there are "
                    f"{', '.join(rewards)}.{did_you_mean(part, rewards)}"
                )
