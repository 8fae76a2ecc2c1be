"""Checks that a run's choices (estimator, generator, trainer, transport ...) fit together; ends of LR schedules.

Each choice is valid alone; these checks find combinations that cannot work, before anything starts. An example is
an estimator that compares samples in a run with one sample per prompt.

Example:

    check_fit(config, roles, catalog)      # ConfigError: n_samples_per_prompt = 1: advantage 'grpo' compares ...
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Self

from slime_core.catalog import Catalog, is_project_code
from slime_core.catalog.checks import plugin_errors
from slime_core.config.companions import engine_advice
from slime_core.config.keys import OptimArgs, RolloutArgs, RunConfig, changed_keys
from slime_core.config.parsing import check_template
from slime_core.config.settings import DEFAULT_USE, ChosenRoles, ResolvedChoice
from slime_core.errors import ConfigError, did_you_mean
from slime_core.roles import (
    ANY_RECEIVER,
    AdvantageSpec,
    BatchTransformSpec,
    BufferFilterSpec,
    BufferSpec,
    Companion,
    DataSourceSpec,
    EngineSpec,
    Extra,
    GeneratorSpec,
    LossSpec,
    MemoryTag,
    SampleField,
    TrainerSpec,
    TransportSpec,
)
from slime_core.sample import SCORE

ENVIRONMENT = "environment"
"""The reward name for scores that the generator sets."""


def check_fit(config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> None:
    """Raise ConfigError unless a run's choices fit each other and its keys; one message lists all problems."""
    resources = (_memory_problems, _interval_problems, _bf16_problems, _replay)
    checks = (_columns, _companions, _estimation, _rewards, _unused, _train_data, *resources)
    if problems := [problem for check in checks for problem in check(config, roles, catalog)]:
        raise ConfigError("\n".join(problems))


# Estimation: an advantage estimator may need several samples per group, certain rewards and certain columns.


def _columns(config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> Iterator[str]:
    owners: dict[str, str] = {}
    for chosen in roles.all(BatchTransformSpec):
        for column in chosen.spec.columns:
            if column in owners:
                both = f"{owners[column]!r} and {chosen.reference!r}"
                yield f"batch transforms {both} both make the column {column!r}: leave one of them out"
            owners[column] = chosen.reference


def _companions(config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> Iterator[str]:
    # The trainer must support the companion models that the keys require, and loss and advantages must read them.
    advantage, loss, trainer = roles.one(AdvantageSpec).spec, roles.one(LossSpec).spec, roles.one(TrainerSpec).spec
    penalty, distils, has_critic = config.reference.kl_coef > 0, config.distillation.use_opd, advantage.uses_values
    for each, is_wanted, switch in (
        (Companion.REFERENCE, config.reference.use_kl_loss or penalty, "use_kl_loss or kl_coef"),
        (Companion.TEACHER, distils, "use_opd"),
        (Companion.CRITIC, has_critic, "an advantage estimator of values"),
        (Companion.OLD_ACTOR, config.optim.keep_old_actor, "keep_old_actor"),
    ):
        if is_wanted and each not in trainer.companions:
            reason = f"cannot hold the {each.value} model, which {switch} needs"
            yield f"trainer {trainer.name!r} {reason}: choose another trainer"
    if penalty and not advantage.uses_kl_penalty:
        able = _estimators(catalog, "uses_kl_penalty")
        reason = f"advantage {advantage.name!r} has one reward per sample"
        yield f"kl_coef has no effect here: {reason}; use {able}, or use_kl_loss with kl_loss_coef"
    for key in [] if has_critic else sorted(changed_keys(config.critic)):
        able = _estimators(catalog, "uses_values")
        yield f"{key} has no effect here: advantage {advantage.name!r} has no critic; use {able}, or leave it out"
    switches = {"kl_coef": penalty, "use_opd": distils, f"advantage {advantage.name!r}": has_critic}
    for switch, is_on in switches.items():
        if is_on and not loss.uses_advantages:
            yield f"{switch} has no effect here: loss {loss.name!r} does not use advantages"


def _estimators(catalog: Catalog, able: Literal["uses_kl_penalty", "uses_values"]) -> str:
    names = [each.spec.name for each in catalog.choices(AdvantageSpec).values() if getattr(each.spec, able)]
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:]))) or "one that does"


def _estimation(config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> Iterator[str]:
    if config.finetunes or config.debug.debug_rollout_only:
        return
    estimator, loss = roles.one(AdvantageSpec), roles.one(LossSpec)
    spec, of_advantages = estimator.spec, loss.spec.zero_without_advantage(loss.settings)
    has_other_loss = config.distillation.use_opd or config.reference.kl_loss_coef
    has_one_sample = config.rollout.n_samples_per_prompt == 1 and spec.compares_samples(estimator.settings)
    if has_one_sample and of_advantages and not has_other_loss:
        others = " or ".join(_comparing_none(catalog)) or "…"
        yield (
            f"n_samples_per_prompt = 1: advantage {estimator.reference!r} compares the samples of a prompt: give 2 or "
            f"more, or choose an estimator that compares none (advantage_estimator = {others})"
        )
    if not any(each.spec.scores for each in roles.all(GeneratorSpec)):
        rewards = [each.reference for role in ("reward", "group_reward") for each in roles[role]]
        for part in spec.reward_keys(estimator.settings):
            if part != SCORE and not any(part == each or part.startswith(f"{each}/") for each in rewards):
                yield (
                    f"advantage {estimator.reference!r} reads a reward {part!r} that is not chosen; there are "
                    f"{', '.join(rewards)}.{did_you_mean(part, rewards)}"
                )
    transforms = roles.all(BatchTransformSpec)
    made = {column for each in transforms for column in each.spec.columns}
    for column in [each for each in spec.token_columns if each not in made]:
        offered = catalog.choices(BatchTransformSpec).values()
        makers = [each.spec.name for each in offered if column in each.spec.columns][:1] or ["…"]
        use = ", ".join(f'"{name}"' for name in (*(each.reference for each in transforms), *makers))
        yield (
            f"advantage {estimator.reference!r} reads a column {column!r} that no batch transform of this run makes: "
            f"write [batch_transform] use = [{use}]"
        )


def _rewards(config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> Iterator[str]:
    rewards = {each.reference for role in ("reward", "group_reward") for each in roles[role]}
    generators = roles.all(GeneratorSpec)
    if rewards == {ENVIRONMENT} and generators and not any(each.spec.scores for each in generators):
        gives_none = f"generator {generators[0].reference!r} gives no reward {ENVIRONMENT!r}"
        yield f'{gives_none}: choose a reward that judges the response, such as [reward] use = "math"'


def _comparing_none(catalog: Catalog) -> Iterator[str]:
    for each in catalog.choices(AdvantageSpec).values():
        spec = each.spec
        needs_more = spec.is_late or any(info.is_required() for info in spec.model.model_fields.values())
        if not needs_more and not spec.compares_samples(spec.model()):
            yield f'"{spec.name}"'


# Keys that the choices do not support, and choices that the others do not use.


def _unused(config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> Iterator[str]:
    rendering = [each.reference for each in roles.all(GeneratorSpec) if each.spec.renders_prompts]
    sets = config.evaluation.eval_prompt_data.items()
    keys = ["apply_chat_template"] if config.data.apply_chat_template else []
    keys += [f"eval_prompt_data.{name}.apply_chat_template" for name, each in sets if each.apply_chat_template]
    if rendering and keys:
        yield f"{keys[0]} = true: generator {rendering[0]!r} renders the chat template itself; leave it out"
    source, trainer, buffer = roles.one(DataSourceSpec), roles.one(TrainerSpec), roles.one(BufferSpec)
    spec, reads, prompts = trainer.spec, source.spec.reads_prompt_data, config.data.prompt_data
    if reads and not prompts:
        yield "prompt_data is required: a .jsonl or .parquet file, --prompt-data FILE"
    if reads is False and prompts:
        yield f"prompt_data has no effect here: data source {source.reference!r} makes its own prompts"
    if config.optim.balance_by_flops and not any(spec.share_of_ranks(trainer.settings)):
        ranks = f"one share of a step for all of its {spec.world_size(trainer.settings)} ranks"
        yield f"balance_by_flops has no effect here: trainer {trainer.reference!r} has {ranks}"
    instead = "leave it out, or choose another"
    if not config.run.checkpoint_hf and not spec.loads_without_hf:
        yield f"checkpoint_hf = false: trainer {trainer.reference!r} continues from hf/ alone; {instead} trainer"
    if config.optim.reset_optimizer_states and not spec.resets_optimizer:
        yield f"reset_optimizer_states has no effect on trainer {trainer.reference!r}: {instead}"
    own_filter = roles.one(BufferFilterSpec).reference
    if not buffer.spec.uses_buffer_filter and own_filter not in DEFAULT_USE["buffer_filter"]:
        yield f"buffer filter {own_filter!r} has no effect here: buffer {buffer.reference!r} takes none"


def _train_data(config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> Iterator[str]:
    template, trainer = config.debug.save_debug_train_data, roles.one(TrainerSpec)
    spec = trainer.spec
    if template is None:
        return
    if config.debug.debug_rollout_only:
        yield "save_debug_train_data has no effect here: debug_rollout_only starts no trainer"
    if not spec.keeps_train_data:
        yield f"save_debug_train_data has no effect on trainer {spec.name!r}: choose another"
    found = check_template("save_debug_train_data", template, ("rollout_id", "rank"))
    shares = len(set(spec.share_of_ranks(trainer.settings)))
    if "rank" not in found and shares > 1:
        ranks = f"{shares} ranks of trainer {spec.name!r} would write one file"
        yield f"save_debug_train_data = {template!r}: {ranks}: put {{rank}} into its name"


def _bf16_problems(config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> Iterator[str]:
    parties: tuple[tuple[bool, EngineSpec | TrainerSpec], ...] = (
        (config.generates, roles.one(EngineSpec).spec),
        (not config.debug.debug_rollout_only, roles.one(TrainerSpec).spec),
    )
    for used, able in parties if config.run.bf16 else ():
        if used and not able.bf16:
            others = (each.spec for each in catalog.choices(type(able)).values())
            can = (
                " or ".join(f'[{able.role}] use = "{spec.name}"' for spec in others if spec.bf16) or "none is installed"
            )
            yield f"bf16 has no effect on {able.role} {able.name!r}: leave it out, or choose one that can: {can}"


def _memory_problems(config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> Iterator[str]:
    # Engine and trainer share devices or memory; the idle one releases its memory.
    cluster, policy, debug = config.cluster, config.rollout.rollout_policy, config.debug
    keys = ("colocate", "offload_train", "offload_rollout")
    given_key = next((f"{key} = true" for key in keys if getattr(cluster, key)), "")
    if not given_key:
        return
    if config.finetunes or debug.debug_rollout_only or debug.load_debug_rollout_data is not None:
        yield f"{given_key} has no effect here: only one of engine and trainer is started"
    if policy != "sync":
        reason = f'with rollout_policy = "{policy}" engines generate while the ranks train'
        yield f'{given_key}: {reason}; leave it out, or set rollout_policy = "sync"'
    halves: tuple[tuple[str, bool, EngineSpec | TrainerSpec], ...] = (
        ("offload_rollout", cluster.offloads_rollout, roles.one(EngineSpec).spec),
        ("offload_train", cluster.offloads_train, roles.one(TrainerSpec).spec),
    )
    for key, offloads, spec in halves:
        if offloads and not spec.releases:
            instead = f"set {key} = false, or choose another {spec.role}"
            yield f"{given_key}: {spec.role} {spec.name!r} cannot release memory; {instead}"


def _interval_problems(config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> Iterator[str]:
    # If the run publishes less often, an engine that starts late or reacquires memory needs the served version.
    transport, engine = roles.one(TransportSpec).spec, roles.one(EngineSpec).spec
    given_key = f"update_weights_interval = {config.rollout.update_weights_interval}"
    if config.rollout.update_weights_interval == 1:
        return
    if config.debug.debug_rollout_only or config.debug.load_debug_rollout_data is not None:
        yield f"{given_key} has no effect here: only one of engine and trainer is started; leave it out"
    if transport.rendezvous:
        reason = f"with transport {transport.name!r} a replaced engine gets the trainer's weights, not the served ones"
        yield f'{given_key}: {reason}: set it to 1, or choose a transport of files, [transport] use = "disk"'
    if config.cluster.offloads_rollout and MemoryTag.WEIGHTS in engine.releases:
        reason = f"engine {engine.name!r} releases its weights while the ranks train"
        yield f"{given_key}: {reason}: set it to 1, or offload_rollout = false"


def _replay(config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> Iterator[str]:
    # The run's buffer must accept groups as old as the rollout policy makes them.
    buffer = roles.one(BufferSpec)
    with plugin_errors("buffer (replay)", buffer.plugin):
        most = buffer.spec.replay(buffer.settings).max_staleness
    needed, why = _staleness(config.rollout)
    if most is not None and most < needed:
        yield (
            f"buffer {buffer.reference!r} drops groups more than {most} weight versions old, and with {why} groups are "
            f"{needed} old: allow {needed} in [buffer.{buffer.reference}], or change {why.partition(' ')[0]}"
        )


def _staleness(rollout: RolloutArgs) -> tuple[int, str]:
    if rollout.rollout_policy == "continuous" or rollout.partial_rollout:
        return rollout.staleness, f"max_staleness = {rollout.staleness}"
    ahead, interval = int(rollout.rollout_policy == "async"), rollout.update_weights_interval
    key = f"update_weights_interval = {interval}" if interval > 1 else f'rollout_policy = "{rollout.rollout_policy}"'
    return ahead + interval - 1, key


# Extras for training: fields that the trainer reads and that engine or generator must return.

SOURCE_OF = {
    SampleField.ROLLOUT_ROUTED_EXPERTS: Extra.ROUTED_EXPERTS,
    SampleField.ROLLOUT_TOP_P_TOKEN_IDS: Extra.TOP_P_TOKENS,
    SampleField.ROLLOUT_TOP_P_TOKEN_OFFSETS: Extra.TOP_P_TOKENS,
}
"""Sample field -> the extra that fills it."""


def wanted_extras(config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> frozenset[Extra]:
    """Return the engine extras that training needs.

    Without top-p sampling, kept token ids are left out: they would be the whole vocabulary.

    Raises ConfigError in a run that generates if neither engine nor generator fills a field that the trainer reads.
    """
    trainer, engine = roles.one(TrainerSpec), roles.one(EngineSpec)
    reads = trainer.spec.reads(trainer.settings)
    wanted = {SOURCE_OF[field]: field for field in sorted(reads & SOURCE_OF.keys(), key=lambda each: each.value)}
    if config.rollout.rollout_top_p == 1:
        wanted.pop(Extra.TOP_P_TOKENS, None)
    withheld = engine.spec.gives & engine.spec.excluded_extras(engine.settings)
    given = engine.spec.gives - withheld
    from_generators = frozenset[Extra]().union(*(each.spec.gives for each in roles.all(GeneratorSpec)))
    if config.generates and not config.debug.debug_rollout_only:
        _refuse_bias(config.rollout, trainer.reference, replays_top_p=Extra.TOP_P_TOKENS in wanted)
        for extra, field in wanted.items():
            if extra not in given | from_generators:
                way = "choose others for it" if extra in withheld else engine_advice(extra, catalog, "[engine] use")
                with_these = " with its settings" if extra in withheld else ""
                raise ConfigError(
                    f"trainer {trainer.reference!r} reads {field.value} of samples, and engine {engine.reference!r} "
                    f"does not give {extra.value}{with_these}: {way}, or change the trainer's settings"
                )
    return given & wanted.keys()


def _refuse_bias(rollout: RolloutArgs, trainer: str, *, replays_top_p: bool) -> None:
    # Sampling from a distribution that the trainer does not compute biases the gradient, so the user must allow it.
    cut = {
        "rollout_top_p": rollout.rollout_top_p < 1 and not replays_top_p,
        "rollout_top_k": rollout.rollout_top_k > 0,
        "rollout_min_p": rollout.rollout_min_p > 0,
    }
    if (keys := [key for key, is_cut in cut.items() if is_cut]) and not rollout.accept_biased_sampling:
        raise ConfigError(
            f"{' and '.join(keys)}: gradients are biased, as trainer {trainer!r} takes log-probs among all tokens. "
            "Leave it out, choose a trainer that replays what top-p kept, or set accept_biased_sampling = true"
        )


# The transport of weights: the run file's, or one that both trainer and engine support.


def name_transport(
    trainer: TrainerSpec,
    engine: EngineSpec,
    catalog: Catalog,
    required: ResolvedChoice[TransportSpec] | None,
    nodes: int,
) -> str:
    """Return the name of a transport that trainer and engine support; `required` is the run file's choice, if any."""
    there = {name: each.spec for name, each in catalog.choices(TransportSpec).items()}
    if required is not None:
        there.setdefault(required.registered.qualified, required.spec)  # a project file is not in the catalog
    offered = {name: spec for name, spec in there.items() if nodes == 1 or not spec.one_machine}
    required_name = required.registered.qualified if required else None
    if required is not None and required_name in there and required_name not in offered:
        others = ", ".join(offered)
        instead = f"leave it out, or choose one of {others}" if others else "leave it out; no transport spans nodes"
        raise ConfigError(
            f"transport {required.spec.name!r} is for one machine, and actor_num_nodes = {nodes}: {instead}"
        )
    agreed = agree_transport(trainer, engine, offered, required_name)
    short = offered[agreed].name
    return short if not is_project_code(agreed) and sum(each.name == short for each in there.values()) == 1 else agreed


def agree_transport(
    trainer: TrainerSpec, engine: EngineSpec, offered: Mapping[str, TransportSpec], required: str | None
) -> str:
    """Qualified name of the engine's first transport that the trainer supports; `required` must suit both.

    Raises:
        ConfigError: they have no transport in common, or do not both support the required one.
    """
    sends, receives = trainer.transports, engine.transports
    takes: dict[str, None] = {}
    for wanted in receives:
        takes |= dict.fromkeys(name for name, spec in offered.items() if _means(wanted, name, spec))
    both = [name for name in takes if sends is None or any(_means(each, name, offered[name]) for each in sends)]
    if required in both:
        return required
    if both and required is None:
        return both[0]
    why = f"they do not both support transport {required!r}" if required else "they have no transport in common"
    raise ConfigError(
        f"trainer {trainer.name!r} cannot send weights to engine {engine.name!r}: {why}. The trainer supports "
        f"{'any' if sends is None else _listed(sends)}, the engine {_listed(receives)}. Available are "
        f"{_listed(offered)}. " + (f"Choose [transport] use = {both[0]!r}" if both else "Choose a matching pair")
    )


def _means(wanted: str, name: str, spec: TransportSpec) -> bool:
    return spec.brings_receiver if wanted == ANY_RECEIVER else wanted in (name, spec.name)


def _listed(names: Iterable[str]) -> str:
    return ", ".join("any that brings a receiver" if name == ANY_RECEIVER else name for name in names) or "none"


# Steps at which the learning rate's warm-up and decay end.

_ENDLESS = ("constant", "inverse-square-root")
"""Decay styles that never end."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Ends of warm-up and decay, in optimizer steps of the run. By default the decay ends with the run."""

    warmup: int
    """Steps of the policy's warm-up."""
    decay: int | None
    """Step at which the policy's decay ends; None: it never ends."""
    critic_decay: int | None
    """Step at which the decay ends for a critic that is trained alone at first."""

    @classmethod
    def of(cls, keys: OptimArgs, train_steps: int, critic_only: int = 0) -> Self:
        """The schedule in a run of `train_steps` steps, whose first `critic_only` rollouts train only the critic."""
        warmup, ends = keys.lr_warmup_iters, keys.lr_decay_style not in _ENDLESS
        if keys.lr_warmup_fraction is not None:
            warmup = round(keys.lr_warmup_fraction * (keys.lr_decay_iters or train_steps))
        without = critic_only * keys.num_steps_per_rollout
        return cls(
            warmup,
            (keys.lr_decay_iters or train_steps - without) if ends else None,
            (keys.lr_decay_iters or train_steps) if ends and without else None,
        )
