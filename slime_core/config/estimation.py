"""Estimation: does the advantage estimator get what it reads? Groups of several samples, rewards and columns by name.

Example:

    check_estimation(config, roles)      # ConfigError: n_samples_per_prompt = 1 leaves "grpo" nothing to compare
"""

from collections.abc import Iterator, Sequence

from slime_core.catalog import Catalog
from slime_core.config.chosen import Chosen, ChosenRoles
from slime_core.config.run_config import RunConfig
from slime_core.errors import ConfigError, did_you_mean
from slime_core.roles import AdvantageSpec, BatchTransformSpec, GeneratorSpec, LossSpec
from slime_core.sample import SCORE

ENVIRONMENT = "environment"
"""The reward that generators give themselves."""


def check_estimation(config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> None:
    """See that a run that trains by rewards can tell samples apart.

    Raises:
        ConfigError: the estimator compares samples of a group and groups are of one, or it reads a reward that is not
            chosen or a column that nothing makes.
    """
    if config.finetunes or config.debug.debug_rollout_only:
        return
    estimator, loss = roles.one(AdvantageSpec), roles.one(LossSpec)
    spec, of_advantages = estimator.spec, loss.spec.zero_without_advantage(loss.settings)
    others = config.distillation.use_opd or config.reference.kl_loss_coef
    alone = config.rollout.n_samples_per_prompt == 1 and spec.compares_samples(estimator.settings)
    if alone and of_advantages and not others:
        raise ConfigError(
            f"n_samples_per_prompt = 1: advantage {estimator.reference!r} compares the samples of a prompt, and one "
            "alone would teach nothing; give 2 or more, or choose an estimator that compares none "
            f"(advantage_estimator = {' or '.join(_comparing_none(catalog)) or '…'})"
        )
    if not any(each.spec.scores for each in roles.all(GeneratorSpec)):
        rewards = [each.reference for role in ("reward", "group_reward") for each in roles[role]]
        for part in spec.reward_keys(estimator.settings):
            if part != SCORE and not any(part == each or part.startswith(f"{each}/") for each in rewards):
                raise ConfigError(
                    f"advantage {estimator.reference!r} reads a reward {part!r} that is not chosen; there are "
                    f"{', '.join(rewards)}.{did_you_mean(part, rewards)}"
                )
    _check_columns(estimator.reference, spec.token_columns, roles.all(BatchTransformSpec), catalog)


def check_scored(roles: ChosenRoles) -> None:
    """See that somebody scores the samples: the reward `environment` is what a generator gave them, and some give none.

    Raises:
        ConfigError: it is the only reward, and the generator gives none.
    """
    rewards = {each.reference for role in ("reward", "group_reward") for each in roles[role]}
    if rewards != {ENVIRONMENT}:
        return
    every = roles.all(GeneratorSpec)
    generators = [each for each in every if not each.spec.scores]
    if generators and len(generators) == len(every):
        raise ConfigError(
            f"reward {ENVIRONMENT!r} is what the generator itself gives, and {generators[0].reference!r} gives none, "
            'so no sample would be scored: choose a reward that judges the answer, as [reward] use = "math"'
        )


def _check_columns(
    estimator: str, read: Sequence[str], transforms: Sequence[Chosen[BatchTransformSpec]], catalog: Catalog
) -> None:
    """See that batch transforms make the columns that the estimator reads."""
    made = {name for each in transforms for name in each.spec.columns}
    for column in read:
        if column not in made:
            others = catalog.choices(BatchTransformSpec).values()
            makers = [each.spec.name for each in others if column in each.spec.columns]
            used = [each.reference for each in transforms]
            use = ", ".join(f'"{name}"' for name in [*used, *(makers[:1] or ["…"])])
            raise ConfigError(
                f"advantage {estimator!r} reads a column {column!r} that no batch transform of this run makes: write "
                f"[batch_transform] use = [{use}]"
            )


def _comparing_none(catalog: Catalog) -> Iterator[str]:
    """Estimators that have something to learn from one sample of a prompt, with their default settings."""
    for each in catalog.choices(AdvantageSpec).values():
        spec = each.spec
        needs_more = spec.is_late or any(info.is_required() for info in spec.model.model_fields.values())
        if not needs_more and not spec.compares_samples(spec.model()):
            yield f'"{spec.name}"'
