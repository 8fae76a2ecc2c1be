"""What other packages ask about run files: read one, write one, and whether its keys would be accepted.

No file but the run file is looked at: the model directory and the prompts may be on another machine.

Example:

    installed = Installed()
    installed.check(read_run_file(Path("run.toml")))         # ConfigError: "unknown key 'lrr'. Did you mean 'lr'?"
    installed.refusal("trainer", "local", "lora_rnk", 8)     # "unknown setting trainer.local.lora_rnk ..."
"""

from collections.abc import Mapping
from typing import get_args

from pydantic import SecretStr

from slime_core.catalog import Catalog
from slime_core.config.parsing import parse_config
from slime_core.config.resolving import resolve_choices
from slime_core.config.run_file import read_run_file, write_toml
from slime_core.config.settings import read_settings
from slime_core.config.yaml_file import read_yaml
from slime_core.errors import SlimeError
from slime_core.roles import PluginSet
from slime_core.sample import Json

__all__ = ["Installed", "read_run_file", "read_yaml", "write_toml"]


class Installed:
    """What the installed plugins would say of a run file."""

    def __init__(self) -> None:
        """Load the installed plugins.

        Raises:
            PluginError: one that is asked for cannot be loaded.
        """
        self._catalog = Catalog.discover()

    def check(self, values: Mapping[str, Json]) -> None:
        """See that keys are known, typed, in range and not inert, and that the choices fit each other.

        Raises:
            SlimeError: as `slime plan` would say it, before it looks at the model and the prompts.
        """
        config = parse_config(values, None if "plugins" in values else self._catalog)
        catalog = self._catalog if config.plugins == PluginSet() else Catalog.discover(config.plugins)
        resolve_choices(config, catalog)

    def is_secret(self, role: str, name: str, setting: str) -> bool:
        """Whether a choice has such a setting and reads it from the environment alone, as keys and tokens are."""
        try:
            field = self._catalog.find(role, name).spec.model.model_fields[setting]
        except (SlimeError, KeyError):
            return False
        return SecretStr in (field.annotation, *get_args(field.annotation))

    def refusal(self, role: str, name: str, setting: str, value: Json) -> str:
        """Why a choice has no such setting, in its own words; empty where it has one.

        Args:
            role: the role of the choice.
            name: its name.
            setting: a setting of its own, or one that it passes on to the software that is installed, with or without
                the prefix of its flags.
            value: what it would be set to.
        """
        try:
            spec = self._catalog.find(role, name).spec
            own = setting.removeprefix(spec.flat_prefix)
            if own in spec.model.model_fields:
                return ""
            section: dict[str, Json] = {own: value}
            read_settings(role, name, spec, section if spec.installed is None else {spec.installed.key: section})
        except SlimeError as error:
            return str(error)
        return ""
