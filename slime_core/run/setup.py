"""Builders: from a plan's choices to live objects, each given its own small setup and nothing else."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from slime_core.config import Chosen, Plan
from slime_core.data import HfTokenizer, PromptSource
from slime_core.roles import (
    Buffer,
    BufferFilter,
    BufferSetup,
    DataSource,
    DataSourceSetup,
    Engine,
    EngineSetup,
    Generator,
    GroupFilter,
    Launcher,
    LauncherSetup,
    PromptFile,
    Reward,
    SamplingParams,
    Settings,
    Setup,
    Tokenizer,
    Tracker,
    TrackerSetup,
)
from slime_core.rollout import EvalSet
from slime_core.run.folder import RunFolder

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

    def eval_sets(self, tokenizer: Tokenizer) -> list[EvalSet]:
        """Evaluation data sets, read whole."""
        evaluation = self.plan.config.evaluation
        return [
            EvalSet(name, self._eval_source(name, path, tokenizer).every_prompt(), self.eval_sampling())
            for name, path in evaluation.eval_prompt_data.items()
        ]

    def _eval_source(self, name: str, path: str, tokenizer: Tokenizer) -> PromptSource:
        data, evaluation = self.plan.config.data, self.plan.config.evaluation
        prompts = PromptFile(
            path=Path(path),
            name=f"eval:{name}",
            input_key=evaluation.eval_input_key or data.input_key,
            label_key=evaluation.eval_label_key or data.label_key,
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
            n_samples_per_prompt=evaluation.n_samples_per_eval_prompt,
            shuffle=False,
        )
        return PromptSource(setup)

    def generator(self) -> Generator:
        """The run's generator."""
        return cast(Generator, _build(self.plan.one("generator"), self.setup))

    def reward(self, chosen: Chosen) -> Reward:
        """One of the run's rewards."""
        return cast(Reward, _build(chosen, self.setup))

    def group_filter(self) -> GroupFilter | None:
        """The run's group filter, if any."""
        chosen = self.plan.maybe("group_filter")
        return cast(GroupFilter, _build(chosen, self.setup)) if chosen else None

    def buffer(self) -> Buffer:
        """The run's buffer, with its filter."""
        buffer_filter = cast(BufferFilter, _build(self.plan.one("buffer_filter"), self.setup))
        setup = BufferSetup(self.make, self.plan.config.run.seed, buffer_filter=buffer_filter)
        return cast(Buffer, _build(self.plan.one("buffer"), setup))

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

    def trackers(self, folder: RunFolder) -> list[Tracker]:
        """The run's trackers."""
        setup = TrackerSetup(self.make, self.plan.config.run.seed, run_dir=folder.root)
        return [cast(Tracker, _build(chosen, setup)) for chosen in self.plan.roles["tracker"]]

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

    def eval_sampling(self) -> SamplingParams:
        """How evaluation samples; what is not given is as in training."""
        given, training = self.plan.config.evaluation, self.sampling()
        return SamplingParams(
            max_new_tokens=_default(given.eval_max_response_len, training.max_new_tokens),
            temperature=_default(given.eval_temperature, training.temperature),
            top_p=_default(given.eval_top_p, training.top_p),
            top_k=_default(given.eval_top_k, training.top_k),
            stop_token_ids=training.stop_token_ids,
        )


def _build(chosen: Chosen, setup: Setup) -> object:
    settings: Settings = chosen.settings
    return chosen.registered.spec.factory(settings, setup)


def _default(value: T | None, otherwise: T) -> T:
    return otherwise if value is None else value


def read_all_prompts(plan: Plan) -> None:
    """Read the tokenizer, the prompts and the evaluation sets as a run would, to find what is wrong with them.

    Raises:
        DataError: a prompt file cannot be read.
        ModelError: the tokenizer cannot be read.
    """
    builder = Builder(plan)
    tokenizer = builder.tokenizer()
    builder.data_source(tokenizer)
    builder.eval_sets(tokenizer)
