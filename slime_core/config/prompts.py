"""What becomes of a prompt on its way to the engine: it is rendered once, and nobody leaves its media out unsaid.

Example:

    check_rendered_once(config, roles)      # ConfigError: apply_chat_template = true: generator 'agent' renders ...
    check_media(plan)                       # ConfigError: multimodal_keys: prompts with image cannot be used here: ...
"""

from collections.abc import Iterator

from slime_core.config.chosen import Chosen, ChosenRoles
from slime_core.config.plan import Plan
from slime_core.config.run_config import RunConfig
from slime_core.errors import ConfigError
from slime_core.roles import EngineSpec, GeneratorSpec, SampleField, TrainerSpec


def check_rendered_once(config: RunConfig, roles: ChosenRoles) -> None:
    """See that no prompt is rendered twice.

    Raises:
        ConfigError: prompts are rendered for a generator that does so itself.
    """
    rendering = [each.reference for each in roles.all(GeneratorSpec) if each.spec.renders_prompts]
    sets = config.evaluation.eval_prompt_data.items()
    keys = ["apply_chat_template"] if config.data.apply_chat_template else []
    keys += [f"eval_prompt_data.{name}.apply_chat_template" for name, each in sets if each.apply_chat_template]
    if rendering and keys:
        raise ConfigError(
            f"{keys[0]} = true: generator {rendering[0]!r} renders the chat template itself, so that the model would "
            "see prompts that are rendered twice; leave it out"
        )


def check_media(plan: Plan) -> None:
    """See that no generator drops what `multimodal_keys` of the run, or of an evaluation set, reads.

    A generator that looks at a sample's media itself is left alone: it may make text of them, or ask an engine that
    takes them.

    Raises:
        ConfigError: one does; names it, and every other part that could not make use of media either.
    """
    config, generator = plan.config, plan.roles.one(GeneratorSpec)
    if config.finetunes or config.debug.load_debug_rollout_data is not None:
        return
    whole = [*config.data.multimodal_keys]
    uses = {"multimodal_keys": (whole, generator)}
    for name, own in config.evaluation.eval_prompt_data.items():
        kinds = whole if own.multimodal_keys is None else [*own.multimodal_keys]
        chosen = plan.choose(GeneratorSpec, own.generator) if own.generator else generator
        uses[f"eval_prompt_data.{name}.multimodal_keys"] = kinds, chosen
    for key, (kinds, chosen) in uses.items():
        if kinds and chosen.spec.text_only:
            unable = "; ".join(_unable(plan, chosen))
            raise ConfigError(
                f"{key}: prompts with {' and '.join(kinds)} cannot be used here: {unable}. Leave it out to train on "
                "the text alone, or choose a generator of your own that reads sample.multimodal_inputs"
            )


def _unable(plan: Plan, generator: Chosen[GeneratorSpec]) -> Iterator[str]:
    engine, trainer = plan.roles.one(EngineSpec), plan.roles.one(TrainerSpec)
    yield f"generator {generator.reference!r} gives engines the text of a prompt alone"
    if not engine.spec.takes_media:
        yield f"engine {engine.reference!r} takes no media"
    reads = trainer.spec.reads(trainer.settings)
    if SampleField.MULTIMODAL_TRAIN_INPUTS not in reads:
        yield f"trainer {trainer.reference!r} reads no multimodal_train_inputs"
