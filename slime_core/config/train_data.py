"""What `save_debug_train_data` and `save_hf` may say: paths with the numbers of what is written in braces.

Example:

    fields_of("dump/{rollout_id}/{rank}.safetensors")       # {"rollout_id", "rank"}
"""

from string import Formatter

from slime_core.config.run_config import RunConfig
from slime_core.errors import ConfigError, did_you_mean
from slime_core.roles import Settings, TrainerSpec


def fields_of(template: str) -> set[str]:
    """What stands in braces.

    Raises:
        ValueError: a brace is left alone, or says more than a name.
    """
    found = {name for _, name, form, conversion in Formatter().parse(template) if name is not None}
    if any(form or conversion for _, _, form, conversion in Formatter().parse(template)):
        raise ValueError("a name alone stands in braces")
    return found


def check_template(key: str, template: str, known: set[str]) -> set[str]:
    """The names in a path's braces, all of them known.

    Raises:
        ConfigError: one is not, or the braces do not match.
    """
    allowed = " and ".join(f"{{{name}}}" for name in sorted(known, reverse=True))
    try:
        found = fields_of(template)
    except ValueError as error:
        raise ConfigError(f"{key} = {template!r}: {error}; it may say {allowed}") from None
    if strange := sorted(found - known):
        hint = did_you_mean(strange[0], known)
        raise ConfigError(f"{key} = {template!r}: nothing is known of {{{strange[0]}}}.{hint} It may say {allowed}")
    return found


def check_train_data(config: RunConfig, trainer: TrainerSpec, settings: Settings) -> None:
    """See that the trainer writes what it trains on, each share to a file of its own.

    Raises:
        ConfigError: it does not, or several would write one file.
    """
    template = config.debug.save_debug_train_data
    if template is None:
        return
    if config.debug.debug_rollout_only:
        raise ConfigError("save_debug_train_data has no effect here: debug_rollout_only starts no trainer")
    if not trainer.keeps_train_data:
        raise ConfigError(f"save_debug_train_data has no effect on trainer {trainer.name!r}: choose another")
    found = check_template("save_debug_train_data", template, {"rollout_id", "rank"})
    shares = len(set(trainer.share_of_ranks(settings)))
    if "rank" not in found and shares > 1:
        raise ConfigError(
            f"save_debug_train_data = {template!r}: {shares} ranks of trainer {trainer.name!r} would write one file: "
            "put {rank} into its name"
        )
