"""What training wants of answers beyond tokens and log-probs: what the trainer reads and the engine gives."""

from slime_core.catalog import Catalog
from slime_core.config.chosen import ChosenRoles
from slime_core.config.run_config import RunConfig
from slime_core.errors import ConfigError
from slime_core.roles import EngineSpec, Extra, GeneratorSpec, SampleField, TrainerSpec

SOURCE_OF = {
    SampleField.ROLLOUT_ROUTED_EXPERTS: Extra.ROUTED_EXPERTS,
    SampleField.ROLLOUT_TOP_P_TOKEN_IDS: Extra.TOP_P_TOKENS,
    SampleField.ROLLOUT_TOP_P_TOKEN_OFFSETS: Extra.TOP_P_TOKENS,
}
"""The extra that fills a field of samples."""


def wanted_extras(config: RunConfig, roles: ChosenRoles, catalog: Catalog) -> frozenset[Extra]:
    """What requests for training want; where top-p is off, nobody wants the whole vocabulary of each token.

    Raises:
        ConfigError: the trainer reads what neither the engine nor the generator gives, and the run makes samples.
    """
    trainer, engine = roles.one(TrainerSpec), roles.one(EngineSpec)
    reads = trainer.spec.reads(trainer.settings)
    wanted = {SOURCE_OF[field]: field for field in sorted(reads & SOURCE_OF.keys(), key=lambda each: each.value)}
    if config.rollout.rollout_top_p == 1:
        wanted.pop(Extra.TOP_P_TOKENS, None)
    withheld = engine.spec.gives & engine.spec.withholds(engine.settings)
    given = engine.spec.gives - withheld
    brought = frozenset[Extra]().union(*(each.spec.gives for each in roles.all(GeneratorSpec)))
    generates = not config.finetunes and config.debug.load_debug_rollout_data is None
    if generates and not config.debug.debug_rollout_only:
        _refuse_bias(config, trainer.reference, replays_top_p=Extra.TOP_P_TOKENS in wanted)
        for extra, field in wanted.items():
            if extra not in given | brought:
                way = "choose others for it" if extra in withheld else _givers(extra, catalog)
                with_these = " with its settings" if extra in withheld else ""
                raise ConfigError(
                    f"trainer {trainer.reference!r} reads {field.value} of samples, and engine {engine.reference!r} "
                    f"does not give {extra.value}{with_these}: {way}, or have the trainer do without by its own "
                    "settings"
                )
    return given & wanted.keys()


def _refuse_bias(config: RunConfig, trainer: str, *, replays_top_p: bool) -> None:
    """Samples of a distribution that the trainer does not compute give a biased gradient: only if the user says so."""
    rollout = config.rollout
    cut = {
        "rollout_top_p": rollout.rollout_top_p < 1 and not replays_top_p,
        "rollout_top_k": rollout.rollout_top_k > 0,
        "rollout_min_p": rollout.rollout_min_p > 0,
    }
    if (keys := [key for key, is_cut in cut.items() if is_cut]) and not rollout.accept_biased_sampling:
        raise ConfigError(
            f"{' and '.join(keys)}: trainer {trainer!r} takes log-probs among all tokens, and samples come of "
            "those that are left, so that gradients are biased. Leave it out and evaluate with it (eval_top_p, "
            "eval_top_k, min_p of a set), choose a trainer that replays what top-p kept, or set accept_biased_sampling "
            "= true"
        )


def _givers(extra: Extra, catalog: Catalog) -> str:
    if not (engines := engines_giving(extra, catalog)):
        return "no installed engine does; install one, `slime plugins list --role engine` shows those that are"
    return f"choose one that does ({', '.join(engines)}), [engine] use = {engines[0]!r}"


def engines_giving(extra: Extra, catalog: Catalog) -> list[str]:
    """Names of the installed engines that give an extra, in order."""
    return sorted(name for name, each in catalog.choices(EngineSpec).items() if extra in each.spec.gives)
