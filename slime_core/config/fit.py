"""Checks that the choices of a run fit together: estimator, generator, trainer and transport; where a schedule ends.

Each choice is valid alone; these checks find the combinations that cannot work. An example is an estimator that
compares samples in a run with one sample per prompt. All run before anything starts.

Example:

    check_estimation(config, roles)      # ConfigError: n_samples_per_prompt = 1 leaves "grpo" nothing to compare
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from slime_core.catalog import Catalog, is_in_project
from slime_core.catalog.checks import blaming
from slime_core.config.keys import OptimArgs, RolloutArgs, RunConfig
from slime_core.config.settings import Chosen, ChosenRoles
from slime_core.errors import ConfigError, did_you_mean
from slime_core.roles import (
    AdvantageSpec,
    BatchTransformSpec,
    BufferSpec,
    EngineSpec,
    GeneratorSpec,
    LossSpec,
    MemoryTag,
    TrainerSpec,
    TransportSpec,
    agree_transport,
)
from slime_core.sample import SCORE

# Estimation: does the advantage estimator get what it reads? Groups of several samples, rewards and columns by name.

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
    transforms = roles.all(BatchTransformSpec)
    for column in [each for each in spec.token_columns if each not in check_columns(transforms)]:
        offered = catalog.choices(BatchTransformSpec).values()
        makers = [each.spec.name for each in offered if column in each.spec.columns][:1] or ["…"]
        use = ", ".join(f'"{name}"' for name in (*(each.reference for each in transforms), *makers))
        raise ConfigError(
            f"advantage {estimator.reference!r} reads a column {column!r} that no batch transform of this run makes: "
            f"write [batch_transform] use = [{use}]"
        )


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


def check_columns(transforms: Sequence[Chosen[BatchTransformSpec]]) -> dict[str, str]:
    """Who makes each column. Raises ConfigError: two batch transforms make one."""
    owners: dict[str, str] = {}
    for chosen in transforms:
        for column in chosen.spec.columns:
            if column in owners:
                raise ConfigError(
                    f"batch transforms {owners[column]!r} and {chosen.reference!r} both make the column {column!r}: "
                    "leave one of them out"
                )
            owners[column] = chosen.reference
    return owners


def _comparing_none(catalog: Catalog) -> Iterator[str]:
    for each in catalog.choices(AdvantageSpec).values():
        spec = each.spec
        needs_more = spec.is_late or any(info.is_required() for info in spec.model.model_fields.values())
        if not needs_more and not spec.compares_samples(spec.model()):
            yield f'"{spec.name}"'


# Which transport a run's weights travel by: what the run file says, or what trainer and engine have in common.


def name_transport(
    trainer: TrainerSpec, engine: EngineSpec, catalog: Catalog, forced: Chosen[TransportSpec] | None, nodes: int
) -> str:
    """The name that a run file would choose it by; of a run on several nodes none that is for one machine.

    Raises:
        ConfigError: trainer and engine have none in common, or not the `forced` one, or that is for one machine.
    """
    there = {name: each.spec for name, each in catalog.choices(TransportSpec).items()}
    if forced is not None:
        there.setdefault(forced.registered.qualified, forced.spec)  # one of a project file is not in the catalog
    offered = {name: spec for name, spec in there.items() if nodes == 1 or not spec.one_machine}
    forced_name = forced.registered.qualified if forced else None
    if forced is not None and forced_name in there and forced_name not in offered:
        raise ConfigError(
            f"transport {forced.spec.name!r} is for one machine, and actor_num_nodes = {nodes}: leave it out, or "
            f"choose one of {', '.join(offered) or 'none, there is no other'}"
        )
    agreed = agree_transport(trainer.name, trainer.transports, engine.name, engine.transports, offered, forced_name)
    short = offered[agreed].name
    return short if not is_in_project(agreed) and sum(each.name == short for each in there.values()) == 1 else agreed


def check_interval(config: RunConfig, transport: TransportSpec, engine: EngineSpec) -> None:
    """See that an engine can serve a version while the trainer has newer weights, where the run publishes less often.

    Raises:
        ConfigError: one that comes late, or takes memory back, needs what the trainer has no more.
    """
    asked = f"update_weights_interval = {config.rollout.update_weights_interval}"
    if config.rollout.update_weights_interval == 1:
        return
    if config.debug.debug_rollout_only or config.debug.load_debug_rollout_data is not None:
        raise ConfigError(f"{asked} has no effect here: only one of engine and trainer is started; leave it out")
    if transport.rendezvous:
        raise ConfigError(
            f"{asked}: by transport {transport.name!r} an engine that is replaced gets the weights that the trainer "
            "has at the time, not those that are served: set it to 1, or choose a transport of files, "
            '[transport] use = "disk"'
        )
    if config.cluster.offloads_rollout and MemoryTag.WEIGHTS in engine.releases:
        raise ConfigError(
            f"{asked}: engine {engine.name!r} gives its weights up while the trainer works, and needs them published "
            "after each rollout: set it to 1, or offload_rollout = false"
        )


# Turns: engine and trainer share devices or memory, and whoever waits gives its memory up.


def check_turns(config: RunConfig, engine: EngineSpec, trainer: TrainerSpec) -> None:
    """See that engine and trainer can take turns where the run wants them to.

    Raises:
        ConfigError: they work at once, or one of them gives no memory up.
    """
    cluster, policy, debug = config.cluster, config.rollout.rollout_policy, config.debug
    wanted = {
        "colocate": cluster.colocate,
        "offload_train": bool(cluster.offload_train),
        "offload_rollout": bool(cluster.offload_rollout),
    }
    asked = [f"{key} = true" for key, value in wanted.items() if value]
    if not asked:
        return
    if config.finetunes or debug.debug_rollout_only or debug.load_debug_rollout_data is not None:
        raise ConfigError(f"{asked[0]} has no effect here: only one of engine and trainer is started")
    if policy != "sync":
        raise ConfigError(
            f'{asked[0]}: with rollout_policy = "{policy}" engines generate while the ranks train, so neither can give '
            'up its memory; leave it out, or set rollout_policy = "sync"'
        )
    for offloads, role, spec in (
        (cluster.offloads_rollout, "engine", engine),
        (cluster.offloads_train, "trainer", trainer),
    ):
        if offloads and not spec.releases:
            key = "offload_rollout" if role == "engine" else "offload_train"
            raise ConfigError(
                f"{asked[0]}: {role} {spec.name!r} cannot give up memory; set {key} = false, or choose another {role}"
            )


# Replay: the run's buffer must take groups as old as the rollout policy makes them.


def check_replay(config: RunConfig, buffer: Chosen[BufferSpec]) -> None:
    """Refuse a buffer that would give up groups before a step can train on them.

    Raises:
        ConfigError: it allows less staleness than the policy makes.
        PluginError: the buffer's `replay` raised.
    """
    with blaming("buffer (replay)", buffer.plugin):
        most = buffer.spec.replay(buffer.settings).max_staleness
    needed, why = _staleness(config.rollout)
    if most is not None and most < needed:
        raise ConfigError(
            f"buffer {buffer.reference!r} gives up groups more than {most} weight versions old, and with {why} a step "
            f"trains on groups that are {needed} old: allow {needed} in [buffer.{buffer.reference}], or change "
            f"{why.partition(' ')[0]}"
        )


def _staleness(rollout: RolloutArgs) -> tuple[int, str]:
    if rollout.rollout_policy == "continuous" or rollout.partial_rollout:
        return rollout.staleness, f"max_staleness = {rollout.staleness}"
    ahead = int(rollout.rollout_policy == "async")
    behind = rollout.update_weights_interval - 1
    key = f"update_weights_interval = {behind + 1}" if behind else f'rollout_policy = "{rollout.rollout_policy}"'
    return ahead + behind, key


# At which steps the warm-up and the decay of the learning rate end.

_ENDLESS = ("constant", "inverse-square-root")
"""Styles that never end."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When warm-up and decay end, in optimizer steps of the run; its length decides where no key does."""

    warmup: int
    """Steps of the policy's warm-up."""
    decay: int | None
    """Step at which the policy's decay has ended; None: it never ends."""
    critic_decay: int | None
    """The same of a critic that is trained alone at first."""

    @classmethod
    def of(cls, keys: OptimArgs, train_steps: int, critic_only: int = 0) -> Self:
        """The schedule that the keys describe.

        Args:
            keys: of the run.
            train_steps: optimizer steps of the whole run.
            critic_only: rollouts at the start that train the critic alone.
        """
        warmup, ends = keys.lr_warmup_iters, keys.lr_decay_style not in _ENDLESS
        if keys.lr_warmup_fraction is not None:
            warmup = round(keys.lr_warmup_fraction * (keys.lr_decay_iters or train_steps))
        without = critic_only * keys.num_steps_per_rollout
        return cls(
            warmup,
            (keys.lr_decay_iters or train_steps - without) if ends else None,
            (keys.lr_decay_iters or train_steps) if ends and without else None,
        )
