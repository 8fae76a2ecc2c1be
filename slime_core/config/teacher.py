"""The served teacher, `opd_teacher_model`: that there is one, that it scores texts, and knows the policy's ids.

Example:

    [served_models.teacher]
    hf_checkpoint = "models/teacher"
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from slime_core.catalog import Catalog
from slime_core.config.chosen import ChosenRoles
from slime_core.config.companions import TEACHER_COLUMN
from slime_core.config.model_dir import read_vocab_size
from slime_core.config.run_config import RunConfig
from slime_core.config.served import ServedPlan
from slime_core.config.wants import engines_giving
from slime_core.errors import ConfigError, ModelError, did_you_mean
from slime_core.roles import BatchTransformSpec, Extra, SamplingParams
from slime_core.sample import Json

TEACHES = frozenset({Extra.PROMPT_LOG_PROBS})
"""What is wanted of a teacher's answers."""


def teaching(config: RunConfig) -> SamplingParams:
    """How a teacher is asked about a sample: nothing is made, and log-probs are of the distribution that is trained."""
    return SamplingParams(0, temperature=config.rollout.rollout_temperature or 1.0)


def check_teacher(config: RunConfig, roles: ChosenRoles, served: ServedPlan, catalog: Catalog) -> None:
    """See that the served teacher can be asked about every sample.

    Raises:
        ConfigError: it is not served, or its engine does not score texts, or a batch transform makes its column.
        ModelError: an id means something else to it than to the policy.
    """
    if (name := config.distillation.opd_teacher_model) is None:
        return
    if name not in served:
        raise ConfigError(
            f"opd_teacher_model = {name!r}: this run serves no such model.{did_you_mean(name, served)} Models: "
            f"{', '.join(served) or 'none'}; add one by [served_models.{name}] hf_checkpoint = PATH"
        )
    for chosen in roles.all(BatchTransformSpec):
        if TEACHER_COLUMN in chosen.spec.columns:
            raise ConfigError(
                f"opd_teacher_model has no effect here: batch transform {chosen.reference!r} makes {TEACHER_COLUMN}"
            )
    model, engine = served[name].model, served[name].engine
    if not engine.spec.gives - engine.spec.withholds(engine.settings) >= TEACHES:
        able = engines_giving(Extra.PROMPT_LOG_PROBS, catalog)
        raise ConfigError(
            f"served_models.{name}: a teacher is asked for log-probs of texts, and engine {engine.reference!r} does "
            f"not give {Extra.PROMPT_LOG_PROBS.value} with its settings; engines that do: {', '.join(able) or 'none'}"
        )
    policy = config.run.hf_checkpoint
    differing = unlike(policy, model)
    ours, theirs = read_vocab_size(policy), read_vocab_size(model)
    if differing is None and ours is not None and theirs is not None and ours > theirs:
        differing = f"its vocab_size is {theirs}, and the policy's {ours}, whose larger ids it could not be asked about"
    if differing is not None:
        raise ModelError(
            f"served_models.{name}.hf_checkpoint = {model}: the teacher has another vocabulary than hf_checkpoint = "
            f"{policy}: {differing}; give a teacher with the policy's tokenizer"
        )


def unlike(policy: Path, other: Path) -> str | None:
    """Which id of the policy's tokenizer another one does not have, or has for another text; None if there is none.

    The other may have more: models of one family pad their vocabularies to different sizes.

    Raises:
        ModelError: a tokenizer.json cannot be read.
    """
    if (policy / "tokenizer.json").read_bytes() == (other / "tokenizer.json").read_bytes():
        return None
    ours, theirs = _texts(policy), _texts(other)
    for number in sorted(ours):
        if (text := theirs.get(number)) != ours[number]:
            meant = "no token" if text is None else repr(text)
            return f"id {number} is {ours[number]!r} to the policy, and {meant} to it"
    return None


def _texts(directory: Path) -> Mapping[int, str]:
    """The text of each id."""
    path = directory / "tokenizer.json"
    try:
        about = cast(dict[str, dict[str, Json]], json.loads(path.read_text("utf-8")))
        vocab = about["model"]["vocab"]
        if isinstance(vocab, dict):
            texts = {cast(int, number): text for text, number in vocab.items()}
        else:  # Unigram: texts with their scores, in order
            texts = {number: cast(str, entry[0]) for number, entry in enumerate(cast(list[list[Json]], vocab))}
        added = cast(list[dict[str, Json]], about.get("added_tokens") or [])
        return texts | {cast(int, each["id"]): cast(str, each["content"]) for each in added}
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path} cannot be read as a tokenizer: {type(error).__name__}: {error}; save it with `save_pretrained` of "
            "transformers"
        ) from None
