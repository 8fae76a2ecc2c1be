"""Rendering: a prompt goes through the chat template once, before the generator or in it.

Example:

    [generator]
    use = "agent"                       # renders what its agent says: apply_chat_template is left out
"""

from typing import TYPE_CHECKING

from slime_core.config.chosen import ChosenRoles
from slime_core.errors import ConfigError
from slime_core.roles import GeneratorSpec

if TYPE_CHECKING:
    from slime_core.config.run_config import RunConfig


def check_rendered_once(config: "RunConfig", roles: ChosenRoles) -> None:
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
