"""Evaluation sets: read whole when a session is built, each with what it chose for itself.

Example:

    sets = read_eval_sets(builder, tokenizer, RowChoices(builder))
"""

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from slime_core.config import EvalSetArgs, RunConfig
from slime_core.data import PromptSource
from slime_core.roles import DataSourceSetup, PromptFile, SamplingParams, Tokenizer
from slime_core.rollout import EvalSet, Scoring
from slime_core.run.row_choices import RowChoices

if TYPE_CHECKING:
    from slime_core.run.setup import Builder

T = TypeVar("T")


def read_eval_sets(builder: "Builder", tokenizer: Tokenizer, choices: RowChoices) -> list[EvalSet]:
    """Every evaluation set of the run.

    Raises:
        DataError: a file cannot be read, or a row names a choice that does not exist.
    """
    given = builder.plan.config.evaluation.eval_prompt_data
    return [_eval_set(name, own, builder, tokenizer, choices) for name, own in given.items()]


def _eval_set(name: str, own: EvalSetArgs, builder: "Builder", tokenizer: Tokenizer, choices: RowChoices) -> EvalSet:
    config = builder.plan.config
    setup = DataSourceSetup(
        builder.make,
        config.run.seed,
        prompts=_prompts(name, own, config),
        tokenizer=tokenizer,
        n_samples_per_prompt=_first(own.n_samples_per_eval_prompt, config.evaluation.n_samples_per_eval_prompt),
        shuffle=False,
    )
    source = PromptSource(setup)
    choices.check_rows(source.named_choices())
    return EvalSet(
        name,
        source.every_prompt(),
        _sampling(own, config, builder.sampling()),
        choices.generator(own.generator) if own.generator else None,
        Scoring([choices.reward(own.reward)]) if own.reward else None,
    )


def _prompts(name: str, own: EvalSetArgs, config: RunConfig) -> PromptFile:
    data, every = config.data, config.evaluation
    return PromptFile(
        path=Path(own.path),
        name=f"eval:{name}",
        input_key=own.input_key or every.eval_input_key or data.input_key,
        label_key=own.label_key or every.eval_label_key or data.label_key,
        metadata_key=data.metadata_key,
        tool_key=data.tool_key,
        apply_chat_template=data.apply_chat_template,
        apply_chat_template_kwargs=data.apply_chat_template_kwargs,
    )


def _sampling(own: EvalSetArgs, config: RunConfig, training: SamplingParams) -> SamplingParams:
    """The set's own keys, else those of all sets, else as in training."""
    every = config.evaluation
    return SamplingParams(
        max_new_tokens=_first(own.max_response_len, every.eval_max_response_len, training.max_new_tokens),
        temperature=_first(own.temperature, every.eval_temperature, training.temperature),
        top_p=_first(own.top_p, every.eval_top_p, training.top_p),
        top_k=_first(own.top_k, every.eval_top_k, training.top_k),
        stop_token_ids=training.stop_token_ids,
    )


def _first(*values: T | None) -> T:
    """The first that is given."""
    return next(value for value in values if value is not None)
