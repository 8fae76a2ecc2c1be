"""The run file's table `[plugins]`: which plugins a run loads, and in which order.

Example:

    [plugins]
    require = ["slime-reward-math"]       # must load
    without = ["slime-tracker-x"]         # left out
    order = ["slime-agent-openai"]        # first, in this order
    modules = ["./my_plugin.py"]          # modules of the project, last
    only = ["slime-reward-math"]          # these alone, and the core's own
"""

from collections.abc import Mapping, Sequence
from typing import Final

from slime_core.catalog import is_plugin_module
from slime_core.errors import ConfigError, did_you_mean
from slime_core.roles import PluginSet
from slime_core.sample import Json

TABLE: Final = "plugins"
KEYS: Final = ("require", "without", "order", "modules", "only")


def parse_plugins(table: Json) -> PluginSet:
    """The table as plain data; what its names mean is found when plugins are loaded.

    Raises:
        ConfigError: not a table, an unknown key, or a value that is not a list of names.
    """
    if not isinstance(table, dict):
        raise ConfigError(f'{TABLE} = {table!r}: write a table instead, [{TABLE}] require = ["NAME"]')
    lists: dict[str, tuple[str, ...]] = {}
    for key, value in table.items():
        if key not in KEYS:
            raise ConfigError(f"unknown key {key!r} in [{TABLE}].{did_you_mean(key, KEYS)} Keys: {', '.join(KEYS)}.")
        if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
            raise ConfigError(f'{TABLE}.{key} = {value!r}: write a list of names, ["NAME"]')
        lists[key] = tuple(dict.fromkeys(str(name) for name in value))
    return PluginSet(
        only=lists.get("only"),
        without=lists.get("without", ()),
        require=lists.get("require", ()),
        order=lists.get("order", ()),
        modules=lists.get("modules", ()),
    )


def plugins_table(plugins: PluginSet) -> dict[str, Json]:
    """The table that says the same; empty keys are left out."""
    table: dict[str, Json] = {key: list(getattr(plugins, key)) for key in KEYS[:-1] if getattr(plugins, key)}
    return table if plugins.only is None else {**table, "only": list(plugins.only)}


def add_plugins(
    values: Mapping[str, Json],
    asked: Sequence[str],
    left_out: Sequence[str],
    only: Sequence[str] | None = None,
) -> dict[str, Json]:
    """A run file's values with plugins added to its table.

    Args:
        values: the run file's.
        asked: `--plugin`: required, and before those of the file; or modules of the project.
        left_out: `--no-plugin`.
        only: what SLIME_PLUGINS allows, instead of the file's `only`.

    Raises:
        ConfigError: the file's table is not one.
    """
    if not asked and not left_out and only is None:
        return dict(values)
    file = parse_plugins(values.get(TABLE, {}))
    names = [name for name in asked if not is_plugin_module(name)]
    modules = [name for name in asked if is_plugin_module(name)]
    if misplaced := [name for name in left_out if is_plugin_module(name)]:
        raise ConfigError(
            f"--no-plugin {misplaced[0]} has no effect: a module of the project is loaded only where it is asked for"
        )
    merged = PluginSet(
        only=file.only if only is None else tuple(only),
        without=_joined(file.without, left_out),
        require=_joined(names, file.require),
        order=_joined(names, file.order),
        modules=_joined(file.modules, modules),
    )
    return {**values, TABLE: plugins_table(merged)}


def _joined(first: Sequence[str], then: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*first, *then]))
