"""Builders: from a plan's choices to live objects, each given its own small setup and nothing else."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar, cast

from slime_core.buffer import CheckedBuffer, CheckedFilter
from slime_core.catalog.checks import blaming
from slime_core.catalog.used import Used
from slime_core.config import Chosen, EvalSetArgs, Plan
from slime_core.data import HfTokenizer, PromptSource
from slime_core.errors import ContractError
from slime_core.isolation import OnLoop, Protection
from slime_core.roles import (
    BatchTransform,
    BatchTransformSpec,
    Buffer,
    BufferFilter,
    BufferSetup,
    DataSource,
    DataSourceSetup,
    Engine,
    EngineSetup,
    Generator,
    GeneratorSpec,
    GroupFilter,
    GroupReward,
    Launcher,
    LauncherSetup,
    PromptFile,
    Reward,
    RewardShaper,
    SampleFilter,
    SamplingParams,
    Settings,
    Setup,
    Tokenizer,
    Tracker,
    TrackerSetup,
)
from slime_core.rollout import EvalSet, GeneratorUse, GroupRewardUse, RewardUse, Scoring
from slime_core.run.folder import RunFolder
from slime_core.run.row_choices import RowChoices
from slime_core.run.trackers import Trackers
from slime_core.stats import PluginStats
from slime_core.train.prepare import ColumnMaker, Preparation

PROTOCOLS: dict[str, type] = {
    "data_source": DataSource,
    "generator": Generator,
    "reward": Reward,
    "group_reward": GroupReward,
    "group_filter": GroupFilter,
    "sample_filter": SampleFilter,
    "buffer": Buffer,
    "buffer_filter": BufferFilter,
    "reward_shaper": RewardShaper,
    "batch_transform": BatchTransform,
    "engine": Engine,
    "launcher": Launcher,
    "tracker": Tracker,
}
"""What the factory of a role must make, as far as its methods tell."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds what a plan chose."""

    plan: Plan
    """The resolved configuration."""
    stats: PluginStats
    """Where the calls of what is built are counted."""
    protection: Protection
    """Isolates rewards."""

    @classmethod
    def of(cls, plan: Plan) -> "Builder":
        """A builder whose calls are counted and isolated on their own."""
        stats = PluginStats()
        return cls(plan, stats, Protection(plugins=plan.catalog.plugin_set, seed=plan.config.run.seed, stats=stats))

    @property
    def setup(self) -> Setup:
        """The setup that every factory may expect."""
        return Setup(self.make, self.plan.config.run.seed)

    def make(self, role: str, name: str, **settings: object) -> object:
        """Build another registered choice; plugins get this as `setup.make`. A reward is isolated as in a run."""
        registered = self.plan.catalog.find(role, name)
        validated = registered.spec.settings.model_validate(settings)
        return self.protection.protect(
            registered, validated, lambda: registered.spec.factory(validated, self.setup), name=name
        )

    def _protected(self, chosen: Chosen) -> object:
        """A reward or a group reward, where its spec says that it runs."""
        registered = chosen.registered
        return self.protection.protect(
            registered, chosen.settings, lambda: _build(chosen, self.setup), name=chosen.reference
        )

    def tokenizer(self) -> HfTokenizer:
        """The policy's tokenizer."""
        return HfTokenizer.load(self.plan.config.run.hf_checkpoint)

    def data_source(self, tokenizer: Tokenizer) -> DataSource:
        """The run's data source; reads the prompts, so bad rows are found here."""
        config = self.plan.config
        setup = DataSourceSetup(
            self.make,
            config.run.seed,
            prompts=self._prompts(),
            tokenizer=tokenizer,
            n_samples_per_prompt=config.rollout.n_samples_per_prompt,
            shuffle=config.data.rollout_shuffle,
        )
        return cast(DataSource, _build(self.plan.one("data_source"), setup))

    def _prompts(self) -> PromptFile | None:
        data = self.plan.config.data
        if data.prompt_data is None:
            return None
        path = Path(data.prompt_data)
        return PromptFile(
            path=path,
            name=path.name,
            input_key=data.input_key,
            label_key=data.label_key,
            metadata_key=data.metadata_key,
            tool_key=data.tool_key,
            apply_chat_template=data.apply_chat_template,
            apply_chat_template_kwargs=data.apply_chat_template_kwargs,
            max_prompt_len=data.rollout_max_prompt_len,
        )

    def eval_sets(self, tokenizer: Tokenizer, choices: RowChoices) -> list[EvalSet]:
        """Evaluation data sets, read whole, with what each chose for itself.

        Raises:
            DataError: a file cannot be read, or a row names a choice that does not exist.
        """
        return [
            self._eval_set(name, own, tokenizer, choices)
            for name, own in self.plan.config.evaluation.eval_prompt_data.items()
        ]

    def _eval_set(self, name: str, own: EvalSetArgs, tokenizer: Tokenizer, choices: RowChoices) -> EvalSet:
        data, evaluation = self.plan.config.data, self.plan.config.evaluation
        prompts = PromptFile(
            path=Path(own.path),
            name=f"eval:{name}",
            input_key=own.input_key or evaluation.eval_input_key or data.input_key,
            label_key=own.label_key or evaluation.eval_label_key or data.label_key,
            metadata_key=data.metadata_key,
            tool_key=data.tool_key,
            apply_chat_template=data.apply_chat_template,
            apply_chat_template_kwargs=data.apply_chat_template_kwargs,
        )
        setup = DataSourceSetup(
            self.make,
            self.plan.config.run.seed,
            prompts=prompts,
            tokenizer=tokenizer,
            n_samples_per_prompt=_default(own.n_samples_per_eval_prompt, evaluation.n_samples_per_eval_prompt),
            shuffle=False,
        )
        source = PromptSource(setup)
        choices.check_rows(source.named_choices())
        return EvalSet(
            name,
            source.every_prompt(),
            self.eval_sampling(own),
            choices.generator(own.generator) if own.generator else None,
            Scoring([choices.reward(own.reward)]) if own.reward else None,
        )

    def generator(self, chosen: Chosen) -> GeneratorUse:
        """A generator, with its own limits."""
        spec, plugin = cast(GeneratorSpec, chosen.registered.spec), chosen.registered.plugin
        generator = OnLoop(
            cast(Generator, _build(chosen, self.setup)),
            timeout_s=_default(spec.timeout_s, self.plan.config.rollout.sample_timeout_s),
            max_concurrency=spec.max_concurrency,
            calls=self.stats.calls("generator", chosen.reference, plugin),
        )
        return GeneratorUse(plugin, cast(Generator, generator))

    def reward(self, chosen: Chosen) -> RewardUse:
        """A reward, with its weight."""
        reward = cast(Reward, self._protected(chosen))
        return RewardUse(chosen.reference, chosen.registered.plugin, chosen.weight, reward)

    def group_reward(self, chosen: Chosen) -> GroupRewardUse:
        """A group reward, with its weight."""
        reward = cast(GroupReward, self._protected(chosen))
        return GroupRewardUse(chosen.reference, chosen.registered.plugin, chosen.weight, reward)

    def group_filter(self) -> Used[GroupFilter] | None:
        """The run's group filter, if any."""
        return next((cast(Used[GroupFilter], self._counted(each)) for each in self.plan.roles["group_filter"]), None)

    def sample_filters(self) -> list[Used[SampleFilter]]:
        """The run's sample filters."""
        return [cast(Used[SampleFilter], self._counted(each)) for each in self.plan.roles["sample_filter"]]

    def _counted(self, chosen: Chosen) -> Used[object]:
        """A plain function of the driver, its calls counted."""
        used = _used(chosen, self.setup)
        calls = self.stats.calls(chosen.registered.spec.role, used.name, used.plugin)
        return replace(used, part=calls.measured(cast(Callable[..., object], used.part)))

    def preparation(self) -> Preparation:
        """What is done to the groups of a draw before they are trained on."""
        return Preparation(
            [cast(Used[RewardShaper], self._counted(chosen)) for chosen in self.plan.roles["reward_shaper"]],
            [
                ColumnMaker(
                    cast(Used[BatchTransform], _used(chosen, self.setup)),
                    cast(BatchTransformSpec, chosen.registered.spec).columns,
                )
                for chosen in self.plan.roles["batch_transform"]
            ],
        )

    def buffer(self) -> CheckedBuffer:
        """The run's buffer, with its filter."""
        buffer_filter = CheckedFilter(cast(Used[BufferFilter], _used(self.plan.one("buffer_filter"), self.setup)))
        setup = BufferSetup(self.make, self.plan.config.run.seed, buffer_filter=buffer_filter)
        return CheckedBuffer(cast(Used[Buffer], _used(self.plan.one("buffer"), setup)))

    def launcher(self, folder: RunFolder) -> Launcher:
        """The run's launcher."""
        setup = LauncherSetup(self.make, self.plan.config.run.seed, scratch=folder.logs)
        return cast(Launcher, _build(self.plan.one("launcher"), setup))

    def engine(self, launcher: Launcher, tokenizer: Tokenizer, folder: RunFolder) -> Engine:
        """The run's engine, not started."""
        run = self.plan.config.run
        setup = EngineSetup(
            self.make,
            run.seed,
            hf_checkpoint=run.hf_checkpoint,
            eos_token_ids=tokenizer.eos_token_ids,
            launcher=launcher,
            scratch=folder.scratch,
        )
        return cast(Engine, _build(self.plan.one("engine"), setup))

    def trackers(self, folder: RunFolder) -> Trackers:
        """The run's trackers."""
        setup = TrackerSetup(self.make, self.plan.config.run.seed, run_dir=folder.root)
        return Trackers([cast(Used[Tracker], _used(chosen, setup)) for chosen in self.plan.roles["tracker"]])

    def sampling(self) -> SamplingParams:
        """How training rollouts sample."""
        rollout = self.plan.config.rollout
        return SamplingParams(
            max_new_tokens=rollout.rollout_max_response_len,
            temperature=rollout.rollout_temperature,
            top_p=rollout.rollout_top_p,
            top_k=rollout.rollout_top_k,
            stop_token_ids=frozenset(rollout.rollout_stop_token_ids),
        )

    def eval_sampling(self, own: EvalSetArgs) -> SamplingParams:
        """How an evaluation set samples: its own keys, else those of all sets, else as in training."""
        every, training = self.plan.config.evaluation, self.sampling()
        return SamplingParams(
            max_new_tokens=_default(own.max_response_len, every.eval_max_response_len, training.max_new_tokens),
            temperature=_default(own.temperature, every.eval_temperature, training.temperature),
            top_p=_default(own.top_p, every.eval_top_p, training.top_p),
            top_k=_default(own.top_k, every.eval_top_k, training.top_k),
            stop_token_ids=training.stop_token_ids,
        )


def _build(chosen: Chosen, setup: Setup) -> object:
    """What a choice's factory makes.

    Raises:
        PluginError: the factory raised, or made something else than its role needs.
    """
    spec = chosen.registered.spec
    settings: Settings = chosen.settings
    with blaming(f"the factory of {spec.role} {chosen.reference!r}", chosen.registered.plugin):
        made = spec.factory(settings, setup)
    needed = PROTOCOLS.get(spec.role)
    if needed is not None and not isinstance(made, needed):
        raise ContractError(
            f"the factory of {spec.role} {chosen.reference!r} of plugin {chosen.registered.plugin} made "
            f"{type(made).__name__} {made!r:.80}; expected a {needed.__name__} (slime_core.roles)"
        )
    return made


def _used(chosen: Chosen, setup: Setup) -> Used[object]:
    return Used(chosen.reference, chosen.registered.plugin, _build(chosen, setup))


def _default(*values: T | None) -> T:
    """The first that is given."""
    return next(value for value in values if value is not None)


def read_all_prompts(plan: Plan) -> None:
    """Read the tokenizer, the prompts and the evaluation sets as a run would, to find what is wrong with them.

    Raises:
        DataError: a prompt file cannot be read, or a row names a choice that does not exist.
        ModelError: the tokenizer cannot be read.
    """
    builder = Builder.of(plan)
    tokenizer, choices = builder.tokenizer(), RowChoices(builder)
    choices.check(builder.data_source(tokenizer))
    builder.eval_sets(tokenizer, choices)
