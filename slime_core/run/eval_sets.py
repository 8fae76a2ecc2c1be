"""Evaluation sets: read whole when a session is built, each with what it chose for itself.

Example:

    sets = read_eval_sets(builder, tokenizer, RowChoices(builder))
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from slime_core.config import EvalSetArgs, RunConfig
from slime_core.data import every_prompt
from slime_core.errors import ConfigError
from slime_core.roles import PromptFile, RowFormat, SamplingParams, Tokenizer
from slime_core.rollout import EvalSet, Scoring
from slime_core.run.row_choices import RowChoices

if TYPE_CHECKING:
    from slime_core.run.setup import Builder

T = TypeVar("T")


def read_eval_sets(builder: "Builder", tokenizer: Tokenizer, choices: RowChoices) -> list[EvalSet]:
    """Every evaluation set of the run.

    Raises:
        DataError: a file cannot be read, or a row names a choice that does not exist.
        ConfigError: a set's sampling contradicts itself.
    """
    given = builder.plan.config.evaluation.eval_prompt_data
    return [_eval_set(name, own, builder, tokenizer, choices) for name, own in given.items()]


def _eval_set(name: str, own: EvalSetArgs, builder: "Builder", tokenizer: Tokenizer, choices: RowChoices) -> EvalSet:
    config = builder.plan.config
    size = _first(own.n_samples_per_eval_prompt, config.evaluation.n_samples_per_eval_prompt)
    read = every_prompt(eval_file(name, own, config, builder.row_format()), tokenizer, size)
    choices.check_rows(read.named)
    return EvalSet(
        name,
        read.groups,
        _sampling(name, own, config, builder.sampling()),
        choices.generator(own.generator) if own.generator else None,
        Scoring([choices.reward(own.reward)]) if own.reward else None,
    )


def eval_file(name: str, own: EvalSetArgs, config: RunConfig, training: RowFormat) -> PromptFile:
    """A set's file, read by its own keys, else those of all sets, else as in training; no prompt is too long for it."""
    every = config.evaluation
    row_format = replace(
        training,
        input_key=_first(own.input_key, every.eval_input_key, training.input_key),
        label_key=own.label_key or every.eval_label_key or training.label_key,
        metadata_key=_first(own.metadata_key, training.metadata_key),
        tool_key=_first(own.tool_key, training.tool_key),
        multimodal_keys=training.multimodal_keys if own.multimodal_keys is None else own.multimodal_keys,
        apply_chat_template=_first(own.apply_chat_template, training.apply_chat_template),
        apply_chat_template_kwargs=_first(own.apply_chat_template_kwargs, training.apply_chat_template_kwargs, {}),
        max_prompt_len=None,
    )
    return PromptFile.of(Path(own.path), f"eval:{name}", row_format)


def _sampling(name: str, own: EvalSetArgs, config: RunConfig, training: SamplingParams) -> SamplingParams:
    """The set's own keys, else those of all sets, else as in training.

    Raises:
        ConfigError: the least length is above the budget.
    """
    every = config.evaluation
    found = SamplingParams(
        max_new_tokens=_first(own.max_response_len, every.eval_max_response_len, training.max_new_tokens),
        temperature=_first(own.temperature, every.eval_temperature, training.temperature),
        top_p=_first(own.top_p, every.eval_top_p, training.top_p),
        top_k=_first(own.top_k, every.eval_top_k, training.top_k),
        min_p=_first(own.min_p, training.min_p),
        min_new_tokens=_first(own.min_new_tokens, every.eval_min_new_tokens),
        stop=training.stop if own.stop is None else tuple(own.stop),
        stop_token_ids=training.stop_token_ids if own.stop_token_ids is None else frozenset(own.stop_token_ids),
        no_stop_trim=_first(own.no_stop_trim, training.no_stop_trim),
        skip_special_tokens=_first(own.skip_special_tokens, training.skip_special_tokens),
        repetition_penalty=_first(own.repetition_penalty, training.repetition_penalty),
        presence_penalty=_first(own.presence_penalty, training.presence_penalty),
        frequency_penalty=_first(own.frequency_penalty, training.frequency_penalty),
    )
    if found.min_new_tokens > found.max_new_tokens:
        raise ConfigError(
            f"eval set {name!r} asks for at least {found.min_new_tokens} tokens (min_new_tokens) and at most "
            f"{found.max_new_tokens} (max_response_len): raise the one or lower the other"
        )
    return found


def _first(*values: T | None) -> T:
    """The first that is given."""
    return next(value for value in values if value is not None)
