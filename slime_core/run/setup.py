"""Builders: from a plan's choices to live objects, each given its own small setup and nothing else."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from slime_core.buffer import CheckedBuffer, CheckedFilter
from slime_core.catalog.checks import blaming
from slime_core.catalog.used import Used
from slime_core.config import Chosen, EvalSetArgs, Plan
from slime_core.data import HfTokenizer, PromptSource
from slime_core.errors import ContractError
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
    GroupRewardSpec,
    Launcher,
    LauncherSetup,
    PromptFile,
    Reward,
    RewardShaper,
    RewardSpec,
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

    @property
    def setup(self) -> Setup:
        """The setup that every factory may expect."""
        return Setup(self.make, self.plan.config.run.seed)

    def make(self, role: str, name: str, **settings: object) -> object:
        """Build another registered choice; plugins get this as `setup.make`."""
        spec = self.plan.catalog.find(role, name).spec
        return spec.factory(spec.settings.model_validate(settings), self.setup)

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
        spec = cast(GeneratorSpec, chosen.registered.spec)
        slots = None if spec.max_concurrency is None else asyncio.Semaphore(spec.max_concurrency)
        generator = cast(Generator, _build(chosen, self.setup))
        return GeneratorUse(chosen.registered.plugin, generator, spec.timeout_s, slots)

    def reward(self, chosen: Chosen) -> RewardUse:
        """A reward, with its weight and time limit."""
        spec = cast(RewardSpec, chosen.registered.spec)
        reward = cast(Reward, _build(chosen, self.setup))
        return RewardUse(chosen.reference, chosen.registered.plugin, chosen.weight, reward, spec.timeout_s)

    def group_reward(self, chosen: Chosen) -> GroupRewardUse:
        """A group reward, with its weight and time limit."""
        spec = cast(GroupRewardSpec, chosen.registered.spec)
        reward = cast(GroupReward, _build(chosen, self.setup))
        return GroupRewardUse(chosen.reference, chosen.registered.plugin, chosen.weight, reward, spec.timeout_s)

    def group_filter(self) -> Used[GroupFilter] | None:
        """The run's group filter, if any."""
        return next(
            (cast(Used[GroupFilter], _used(chosen, self.setup)) for chosen in self.plan.roles["group_filter"]), None
        )

    def sample_filters(self) -> list[Used[SampleFilter]]:
        """The run's sample filters."""
        return [cast(Used[SampleFilter], _used(chosen, self.setup)) for chosen in self.plan.roles["sample_filter"]]

    def preparation(self) -> Preparation:
        """What is done to the groups of a draw before they are trained on."""
        return Preparation(
            [cast(Used[RewardShaper], _used(chosen, self.setup)) for chosen in self.plan.roles["reward_shaper"]],
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
    builder = Builder(plan)
    tokenizer, choices = builder.tokenizer(), RowChoices(builder)
    choices.check(builder.data_source(tokenizer))
    builder.eval_sets(tokenizer, choices)
