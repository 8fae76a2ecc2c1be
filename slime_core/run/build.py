"""Builds the live objects of a run from a plan's choices, and names the plugin whose factory fails.

Each factory gets the setup of its role. `setup.make` builds other choices of that role, so that a choice can wrap
another one.

Example:

    generator = build(plan.roles.one(GeneratorSpec), setup)
    setup = with_nested_make("engine", EngineSetup(make, seed, ...), catalog)
    setup.make("engine", "local")           # works in an engine's factory; a reward's factory gets an error
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from slime_core.batching.prepare import ColumnMaker, Preparation, reward_columns, teacher_column
from slime_core.buffer import CheckedBuffer, CheckedFilter
from slime_core.catalog import Catalog
from slime_core.catalog.catalog import BuiltChoice
from slime_core.catalog.checks import plugin_errors
from slime_core.config import TEACHER_COLUMN, TEACHER_EXTRAS, Plan, ResolvedChoice, teacher_of
from slime_core.data import HfTokenizer, name_files
from slime_core.errors import ConfigError, ContractError, PluginError
from slime_core.processes import OnLoop, Protection
from slime_core.roles import (
    AdvantageSpec,
    BatchTransformSpec,
    BufferFilterSpec,
    BufferSetup,
    BufferSpec,
    DataSource,
    DataSourceSetup,
    DataSourceSpec,
    Engine,
    EngineSetup,
    EngineSpec,
    GenerateOutput,
    GenerateRequest,
    Generator,
    GeneratorSpec,
    GroupFilter,
    GroupFilterSpec,
    GroupReward,
    GroupRewardSpec,
    Launcher,
    LauncherSetup,
    LauncherSpec,
    PromptFile,
    Replay,
    Reward,
    RewardShaperSpec,
    RewardSpec,
    RowFormat,
    SampleFilter,
    SampleFilterSpec,
    SamplingParams,
    ServesCheckpoint,
    Setup,
    Spec,
    StartsAndStops,
    TrackerSetup,
    TrackerSpec,
    Transport,
    TransportSetup,
    TransportSpec,
    WeightChannel,
)
from slime_core.roles.rewards import signature_error
from slime_core.rollout import ENVIRONMENT, EnginePool, Lifecycle, Limits, UsedGenerator, UsedReward
from slime_core.run.folder import RunFolder
from slime_core.run.resume import run_day
from slime_core.run.trainer import TRAINER_GROUP, shared_fields
from slime_core.run.watching import Trackers
from slime_core.sample import Sample
from slime_core.stats import PluginStats

T = TypeVar("T")
PartT = TypeVar("PartT")
SpecT = TypeVar("SpecT", bound="Spec[object]")


def build(chosen: ResolvedChoice[Spec[PartT]], setup: Setup) -> PartT:
    """Build the part with the factory of a choice.

    Raises:
        PluginError: the factory raised, or returned the wrong kind of object for its role.
    """
    spec = chosen.spec
    with plugin_errors(f"the factory of {spec.role} {chosen.reference!r}", chosen.plugin):
        made = spec.factory(chosen.settings, setup)
    [made_of] = get_args(type(spec).__orig_bases__[0])  # type: ignore[attr-defined]  # Engine of Spec[Engine]
    needed = next(iter(get_args(made_of)), made_of)  # the async one of the two reward signatures
    if not isinstance(made, needed):
        raise ContractError(
            f"the factory of {spec.role} {chosen.reference!r} of plugin {chosen.plugin} made "
            f"{type(made).__name__} {made!r:.80}; expected a {needed.__name__} (slime_core.roles)"
        )
    return made


def build_used(chosen: ResolvedChoice[Spec[PartT]], setup: Setup) -> BuiltChoice[PartT]:
    """Build the part, together with its name and plugin for errors and metrics."""
    return BuiltChoice(chosen.reference, chosen.plugin, build(chosen, setup))


SetupT = TypeVar("SetupT", bound=Setup)

LONGEST_SILENCE_S = 300.0
"""Default for the longest time without a token from an engine, however long a sample may take."""
RUN_SETUP_ROLES = frozenset({"buffer", "data_source", "engine", "launcher", "tracker", "trainer", "transport"})
"""Roles whose factories need more than a plain `Setup`."""


def with_nested_make(own_role: str, setup: SetupT, catalog: Catalog) -> SetupT:
    """Return a setup whose `make` can also build choices of the factory's own role."""

    def make(role: str, name: str, **settings: object) -> object:
        if role != own_role:
            return setup.make(role, name, **settings)
        spec = catalog.find(role, name).spec
        return spec.factory(spec.model.model_validate(settings), own)

    own = replace(setup, make=make)
    return own


FunctionT = TypeVar("FunctionT", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class ServedPool:
    """A served model; implements `slime_core.roles.ServedModel`."""

    tokenizer: HfTokenizer
    pool: EnginePool
    """Engines that serve their model directory."""

    async def start(self) -> None:
        """Start the engines and serve their model directory.

        Raises:
            WorkerError: no engine could be started.
        """
        await self.pool.start()
        await self.pool.load_weights(WeightChannel("none", ()), 0)

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """Return one continuation; errors as of the engines."""
        return await self.pool.generate(request)


class Builder:
    """Builds the parts that a plan chose."""

    def __init__(self, plan: Plan) -> None:
        """Prepare new call statistics and a new isolation of rewards."""
        run = plan.config.run
        self.plan = plan
        self.stats = PluginStats()
        """Counts the calls of the parts that are built."""
        self.protection = Protection(plugins=plan.catalog.plugin_set, seed=run.seed, stats=self.stats)
        """Runs rewards in isolation."""
        self.models: dict[str, ServedPool] = {}
        """Served models, which factories get."""
        self.day = run_day(run.save, run.hf_checkpoint)
        """Date that chat templates insert."""
        self._tokenizers: dict[Path, HfTokenizer] = {}
        self._built: dict[tuple[type, str], Any] = {}

    @property
    def setup(self) -> Setup:
        """The setup that every factory gets at least."""
        return Setup(self.make, self.plan.config.run.seed, models=self.models)

    def make(self, role: str, name: str, **settings: object) -> object:
        """Build another registered choice; plugins call this as `setup.make`. A reward is isolated as in a run.

        Raises:
            PluginError: the role needs run-level setup, so only a factory of that role can build it.
        """
        if role in RUN_SETUP_ROLES:
            raise PluginError(
                f'setup.make("{role}", "{name}"): only a factory of the same role can build it; offer a {role} that '
                f"wraps it, and choose that by [{role}] use"
            )
        registered = self.plan.catalog.find(role, name)
        validated = registered.spec.model.model_validate(settings)
        return self.protection.protect(
            registered, validated, lambda: registered.spec.factory(validated, self.setup), name=name
        )

    def _nested(self, chosen: ResolvedChoice[Spec[PartT]], setup: Setup) -> BuiltChoice[PartT]:
        return build_used(chosen, with_nested_make(chosen.spec.role, setup, self.plan.catalog))

    def _protected(self, chosen: ResolvedChoice) -> object:
        return self.protection.protect(
            chosen.registered, chosen.settings, lambda: build(chosen, self.setup), name=chosen.reference
        )

    def tokenizer(self, model: Path | None = None) -> HfTokenizer:
        """Return the tokenizer of a model directory, or the policy's, loaded once; it inserts the run's date."""
        model = model or self.plan.config.run.hf_checkpoint
        if model not in self._tokenizers:
            self._tokenizers[model] = HfTokenizer.load(model, self.day)
        return self._tokenizers[model]

    def tokenizer_notes(self) -> Sequence[str]:
        """Return sentences about surprising behaviour of the policy's tokenizer and chat template.

        Raises:
            ModelError: the tokenizer cannot be read, or the chat template is not valid Jinja.
        """
        config = self.plan.config
        chat = config.data.apply_chat_template or config.debug.load_debug_rollout_data is not None
        return self.tokenizer().notes(chat=chat)

    def data_source(self, check: Callable[[Sample], str | None] | None = None) -> DataSource:
        """Return the run's data source. It reads the prompts, so bad rows and rows that fail a check raise here."""
        config, row_format = self.plan.config, replace(self.row_format(), check=check)
        setup = DataSourceSetup(
            self.make,
            config.run.seed,
            prompts=[PromptFile.of(*each, row_format) for each in name_files(config.data.prompt_data)],
            tokenizer=self.tokenizer(),
            n_samples_per_prompt=config.rollout.n_samples_per_prompt,
            shuffle=config.data.rollout_shuffle,
            row_format=row_format,
            accept_changed_data=config.data.accept_changed_data,
        )
        return self._nested(self.plan.roles.one(DataSourceSpec), setup).part

    def row_format(self) -> RowFormat:
        data = self.plan.config.data
        return RowFormat(**shared_fields(RowFormat, data), max_prompt_len=data.rollout_max_prompt_len)

    def generator(self, name: str) -> UsedGenerator:
        """Return the generator of that name, with its own limits, built once; UnknownName if there is none."""
        return self._once(GeneratorSpec, name, self._generator)

    def reward(self, name: str) -> UsedReward[Reward]:
        """Return the reward of that name, with weight 1, built once; UnknownName if there is none."""
        return self._once(RewardSpec, name, self._reward)

    def _once(self, kind: type[SpecT], name: str, make: Callable[[ResolvedChoice[SpecT]], T]) -> T:
        if (kind, name) not in self._built:
            chosen = self.plan.choose(kind, name)
            same = kind, chosen.registered.qualified
            self._built[kind, name] = self._built[same] = self._built.get(same) or make(chosen)
        return cast(T, self._built[kind, name])

    @property
    def lifecycles(self) -> list[Lifecycle]:
        """Lifecycles of the generators that were built, without duplicates."""
        used = (use.lifecycle for (kind, _), use in self._built.items() if kind is GeneratorSpec)
        return list(dict.fromkeys(each for each in used if each is not None))

    def _generator(self, chosen: ResolvedChoice[GeneratorSpec]) -> UsedGenerator:
        spec, plugin = chosen.spec, chosen.plugin
        with plugin_errors(f"the limit of generator {chosen.reference!r}", plugin):
            most = spec.concurrency_of(chosen.settings)
        timeout_s = self.plan.config.rollout.sample_timeout_s
        made = build(chosen, self.setup)
        if (why := signature_error(made, chosen.reference, "generator")) is not None:
            raise PluginError(f"generator {chosen.reference!r}: {why}")
        generator = OnLoop(
            made,
            timeout_s=timeout_s,
            max_concurrency=most,
            calls=self.stats.calls("generator", chosen.reference, plugin),
        )
        lifecycle = Lifecycle(chosen.reference, plugin, made, timeout_s) if isinstance(made, StartsAndStops) else None
        return UsedGenerator(chosen.reference, plugin, cast(Generator, generator), lifecycle)

    def _reward(self, chosen: ResolvedChoice[RewardSpec]) -> UsedReward[Reward]:
        reward = cast(Reward, self._protected(chosen))
        reads_own = chosen.registered.qualified == f"slime-core/{ENVIRONMENT}"
        return UsedReward(chosen.reference, chosen.plugin, reward, chosen.weight, chosen.spec.each_sample, reads_own)

    def group_reward(self, chosen: ResolvedChoice[GroupRewardSpec]) -> UsedReward[GroupReward]:
        reward = cast(GroupReward, self._protected(chosen))
        return UsedReward(chosen.reference, chosen.plugin, reward, chosen.weight, chosen.spec.each_sample)

    def group_filter(self) -> BuiltChoice[GroupFilter] | None:
        chosen = self.plan.roles.maybe(GroupFilterSpec)
        return self._counted(chosen) if chosen else None

    def sample_filters(self) -> list[BuiltChoice[SampleFilter]]:
        return [self._counted(each) for each in self.plan.roles.all(SampleFilterSpec)]

    def _counted(self, chosen: ResolvedChoice[Spec[FunctionT]]) -> BuiltChoice[FunctionT]:
        used = build_used(chosen, self.setup)
        measured = self.stats.calls(chosen.spec.role, used.name, used.plugin).measured(used.part)
        return replace(used, part=cast(FunctionT, measured))

    def preparation(self) -> Preparation:
        """Return the steps that prepare a draw for training."""
        makers = [
            ColumnMaker(build_used(chosen, self.setup), chosen.spec.columns)
            for chosen in self.plan.roles.all(BatchTransformSpec)
        ]
        made = {name for maker in makers for name in maker.columns}
        teacher = teacher_of(self.plan.config)
        if teacher and teacher.load is None and TEACHER_COLUMN not in made:
            makers.append(teacher_column())
        if keys := self.reward_keys():
            makers.append(reward_columns(keys))
        shapers = [self._counted(chosen) for chosen in self.plan.roles.all(RewardShaperSpec)]
        return Preparation(shapers, makers)

    def reward_keys(self) -> Sequence[str]:
        """Return the names of the reward parts that the advantage estimator reads."""
        chosen = self.plan.roles.one(AdvantageSpec)
        return chosen.spec.reward_keys(chosen.settings)

    def buffer(self) -> CheckedBuffer:
        """Return the run's buffer, with its filter."""
        buffer_filter = CheckedFilter(build_used(self.plan.roles.one(BufferFilterSpec), self.setup))
        setup = BufferSetup(self.make, self.plan.config.run.seed, buffer_filter=buffer_filter)
        return CheckedBuffer(self._nested(self.plan.roles.one(BufferSpec), setup), self.replay().max_uses)

    def replay(self) -> Replay:
        """Return how often the run's buffer may return one group."""
        chosen = self.plan.roles.one(BufferSpec)
        with plugin_errors("buffer (replay)", chosen.plugin):
            return chosen.spec.replay(chosen.settings)

    def launcher(self, folder: RunFolder) -> Launcher:
        plugins = self.plan.catalog.plugin_set
        setup = LauncherSetup(self.make, self.plan.config.run.seed, scratch=folder.logs, plugins=plugins)
        return self._nested(self.plan.roles.one(LauncherSpec), setup).part

    def policy_engines(self, launcher: Launcher, folder: RunFolder) -> EnginePool:
        """Return the pool of the run's engines, not started yet.

        Raises:
            ConfigError: the run has no trainer, and this engine needs one.
        """
        config = self.plan.config
        setup = replace(
            self._engine_setup(launcher, folder, config.run.hf_checkpoint),
            count=config.rollout.rollout_num_engines,
            colocate_with=TRAINER_GROUP if config.cluster.colocate else None,
            offloads=config.cluster.offloads_rollout,
            want=self.plan.want,
        )
        no_trainer_reason = "debug_rollout_only" if config.debug.debug_rollout_only else ""
        return self._pool(self.plan.roles.one(EngineSpec), setup, no_trainer_reason)

    def build_served_models(self, launcher: Launcher, folder: RunFolder) -> None:
        """Fill `models` with the run's served models, not started yet.

        Raises:
            ConfigError: an engine needs a trainer.
            ModelError: a tokenizer cannot be read.
        """
        pools = dict[str, ServedPool]()
        for name, served in self.plan.served.items():
            teaches = name == self.plan.config.distillation.opd_teacher_model
            setup = replace(
                self._engine_setup(launcher, folder, served.model),
                name=f"model-{name}",
                count=served.engines,
                serves=name,
                want=TEACHER_EXTRAS if teaches else frozenset(),
            )
            pool = self._pool(served.engine, setup, f"served_models.{name}")
            pools[name] = ServedPool(self.tokenizer(served.model), pool)
        self.models |= pools

    def _engine_setup(self, launcher: Launcher, folder: RunFolder, model: Path) -> EngineSetup:
        config = self.plan.config
        return EngineSetup(
            self.make,
            config.run.seed,
            hf_checkpoint=model,
            eos_token_ids=self.tokenizer(model).eos_token_ids,
            launcher=launcher,
            scratch=folder.scratch,
            max_concurrency=config.rollout.max_concurrency,
            float32_matmul_precision=config.run.float32_matmul_precision,
            bf16=config.run.bf16,
        )

    def _pool(self, chosen: ResolvedChoice[EngineSpec], setup: EngineSetup, no_trainer_reason: str) -> EnginePool:
        """Return a pool of one kind of engine.

        `no_trainer_reason` is the key that leaves the trainer out, or "".
        """
        rollout = self.plan.config.rollout

        def make_engine(number: int) -> BuiltChoice[Engine]:
            name = f"{setup.name}-{number}" if setup.count > 1 else setup.name
            scratch = setup.scratch / name
            scratch.mkdir(parents=True, exist_ok=True)
            used = self._nested(chosen, replace(setup, scratch=scratch, name=name, number=number))
            if no_trainer_reason and not isinstance(used.part, ServesCheckpoint):
                raise ConfigError(
                    f"{no_trainer_reason}: engine {used.name!r} of plugin {used.plugin} gets its weights from a "
                    "trainer alone (it has no load_checkpoint): choose another engine"
                )
            return used

        end = min(setup.eos_token_ids, default=0)
        probe = GenerateRequest([end], SamplingParams(max_new_tokens=1), self.plan.config.run.seed)
        silence_s = rollout.rollout_engine_timeout_s or min(rollout.sample_timeout_s / 2, LONGEST_SILENCE_S)
        limits = Limits.of(chosen.spec, silence_s)
        return EnginePool(make_engine, setup.count, limits, probe=probe, load_checkpoint=bool(no_trainer_reason))

    def transport(self, folder: RunFolder) -> BuiltChoice[Transport]:
        """Return the transport from the run's trainer to its engines, not opened yet."""
        engine, scratch = self.plan.roles.one(EngineSpec), folder.scratch / "weights"
        scratch.mkdir(parents=True, exist_ok=True)
        with plugin_errors("engine (workers)", engine.plugin):
            receivers = engine.spec.workers(engine.settings)
        setup = TransportSetup(
            self.make,
            self.plan.config.run.seed,
            scratch=scratch,
            engines=self.plan.config.rollout.rollout_num_engines,
            receivers=receivers,
        )
        return self._nested(self.plan.roles.one(TransportSpec), setup)

    def trackers(self, folder: RunFolder) -> Trackers:
        setup = TrackerSetup(self.make, self.plan.config.run.seed, run_dir=folder.root)
        return Trackers(self.stats, [self._nested(chosen, setup) for chosen in self.plan.roles.all(TrackerSpec)])
