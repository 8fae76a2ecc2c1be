"""The served teacher, `opd_teacher_model`: that there is one, that it scores texts, and knows the policy's ids.

Example:

    [served_models.teacher]
    hf_checkpoint = "models/teacher"
"""

from typing import TYPE_CHECKING

from slime_core.catalog import Catalog
from slime_core.config.chosen import ChosenRoles
from slime_core.config.companions import TEACHER_COLUMN
from slime_core.config.model_dir import read_vocab_size
from slime_core.config.served import ServedPlan
from slime_core.config.vocabulary import unlike
from slime_core.config.wants import engines_giving
from slime_core.errors import ConfigError, ModelError, did_you_mean
from slime_core.roles import BatchTransformSpec, Extra, SamplingParams

if TYPE_CHECKING:
    from slime_core.config.run_config import RunConfig

TEACHES = frozenset({Extra.PROMPT_LOG_PROBS})
"""What is wanted of a teacher's answers."""


def teaching(config: "RunConfig") -> SamplingParams:
    """How a teacher is asked about a sample: nothing is made, and log-probs are of the distribution that is trained."""
    return SamplingParams(0, temperature=config.rollout.rollout_temperature or 1.0)


def check_teacher(config: "RunConfig", roles: ChosenRoles, served: ServedPlan, catalog: Catalog) -> None:
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
