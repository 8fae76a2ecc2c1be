"""Reads and writes run files in TOML, and merges a run file with overrides from the command line.

The table `[plugins]` is parsed here. Values are limited to text, 64-bit numbers, lists and tables.

Example:

    values = merge(read_run_file(Path("run.toml")), {"lr": 1e-5, "reward": {"use": {"math": 1.0}}})
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from slime_core.catalog import is_plugin_module
from slime_core.errors import ConfigError, did_you_mean, shortened
from slime_core.roles import PluginSet
from slime_core.sample import Json

# The run file's table `[plugins]`: which plugins a run loads, and in which order.

TABLE: Final = "plugins"
KEYS: Final = ("require", "without", "modules", "only")


def parse_plugins(table: Json) -> PluginSet:
    """Parse the table. Names are checked later, when plugins load.

    Raises:
        ConfigError: not a table, an unknown key, or a value that is not a list of names.
    """
    if not isinstance(table, dict):
        raise ConfigError(f'{TABLE} = {table!r}: write a table instead, [{TABLE}] require = ["NAME"]')
    lists: dict[str, Any] = {}
    for key, value in table.items():
        if key not in KEYS:
            raise ConfigError(f"unknown key {key!r} in [{TABLE}].{did_you_mean(key, KEYS)} Keys: {', '.join(KEYS)}.")
        if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
            raise ConfigError(f'{TABLE}.{key} = {value!r}: write a list of names, ["NAME"]')
        lists[key] = tuple(dict.fromkeys(map(str, value)))
    return PluginSet(**lists)


def plugins_table(plugins: PluginSet) -> dict[str, Json]:
    """Return the table that `parse_plugins` reads back; empty keys are left out."""
    lists = {key: getattr(plugins, key) for key in KEYS}
    lists = {key: names for key, names in lists.items() if names or (key == "only" and names is not None)}
    return {key: list(dict.fromkeys(names)) for key, names in lists.items()}


def add_plugins(
    values: Mapping[str, Json], added: Sequence[str], left_out: Sequence[str], only: Sequence[str] | None = None
) -> dict[str, Json]:
    """A run file's values with `--plugin`, `--no-plugin` and SLIME_PLUGINS (`only`) added to its table `[plugins]`."""
    if not added and not left_out and only is None:
        return dict(values)
    file = parse_plugins(values.get(TABLE, {}))
    changed = PluginSet(
        require=(*(name for name in added if not is_plugin_module(name)), *file.require),
        without=(*file.without, *left_out),
        modules=(*file.modules, *filter(is_plugin_module, added)),
        only=file.only if only is None else tuple(only),
    )
    return {**values, TABLE: plugins_table(changed)}


# Limits on any value of a run, checked before its type.

MAX_DEPTH = 32
"""Limit of nested tables and lists."""
_SHOWN = 80


def refuse_unfit(value: object, where: str) -> None:
    """Refuse a value that no key takes: a date, a huge integer, deep tables, invalid Unicode, or a null in a list.

    Args:
        value: what a parser returned.
        where: the file or flag, for messages.

    Raises:
        ConfigError: names the place of the first such value, and what is wrong with it.
    """
    _refuse(value, where, "", 0)


def _refuse(value: object, where: str, path: str, depth: int) -> None:
    place = path if 0 < len(path) <= 2 * _SHOWN else f"{path[:_SHOWN]}[...]" if path else "the value"
    if depth > MAX_DEPTH:
        raise ConfigError(f"{where}: {place} is nested over {MAX_DEPTH} deep, which no key takes: flatten it")
    match value:
        case dict():
            for key, each in value.items():
                _refuse(str(key), where, f"the key {short_repr(key)}", 0)
                _refuse(each, where, f"{path}.{key}" if path else str(key), depth + 1)
        case list():
            if None in value:
                raise ConfigError(f"{where}: {place} is a list with a null, which no run file can hold: leave it out")
            for each in value:
                _refuse(each, where, path, depth + 1)
        case str():
            if "\0" in value or value.encode(errors="replace").decode() != value:
                raise ConfigError(f"{where}: {place} holds a NUL character or half a surrogate pair: take it out")
        case int() if value.bit_length() > 63:
            raise ConfigError(f"{where}: {place} is an integer of {value.bit_length()} bits; at most 64 are allowed")
        case bool() | int() | float() | None:
            pass
        case _:
            raise ConfigError(f'{where}: {place} is a date or time, which no key takes: write it as text, "{value}"')


def short_repr(value: object) -> str:
    """A value's repr for a message, shortened to fit one line."""
    text = repr(value)
    return text if len(text) <= 2 * _SHOWN else f"{text[:_SHOWN]} [...] {text[-_SHOWN:]}"


# Run files: TOML in and out, and the command line's overrides on top.

MAX_BYTES = 256 * 1024
"""Limit of a run file's size."""
MAX_DOTS = 1000
"""Limit of dots between two commas or equals signs of a line. tomllib takes quadratic time in a dotted key's parts."""


def read_run_file(path: Path) -> dict[str, Json]:
    """The keys of a run file.

    Raises:
        ConfigError: no such file, not a file, over `MAX_BYTES`, not TOML (with its line), or a value that no key takes.
    """
    content = _read_bytes(path)
    for number, line in enumerate(content.split(b"\n"), 1):
        if any(part.count(b".") > MAX_DOTS for part in re.split(b"[=,]", line)):
            raise ConfigError(
                f"{path}, line {number}: over {MAX_DOTS} dots without a comma. No key has so many parts; break a long "
                "text into lines"
            )
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")  # some editors begin with a byte order mark
        values = tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply: at most {MAX_DEPTH} tables and lists in each other") from None
    except ValueError as error:  # not TOML, not UTF-8, or a long integer
        raise ConfigError(f"{path} is not a TOML file: {shortened(' '.join(str(error).split()))}") from None
    refuse_unfit(values, str(path))
    return values


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)  # a device or a pipe reports no size
    except FileNotFoundError:
        there = ", ".join(sorted(each.name for each in path.parent.glob("*.toml")))
        hint = f" {path.parent} has {there}." if there else ""
        raise ConfigError(f"no run file {path}.{hint}") from None
    except OSError as error:
        raise ConfigError(f"cannot read run file {path}: {error.strerror}") from None
    if path.suffix in (".yaml", ".yml"):
        raise ConfigError(f"{path}: a run file is TOML, named *.toml: write `key: value` as key = value")
    if len(content) > MAX_BYTES:
        raise ConfigError(
            f"{path} has over {MAX_BYTES // 1024} KiB, the limit of a run file; files of prompts belong in prompt_data"
        )
    return content


def merge(base: Mapping[str, Json], over: Mapping[str, Json]) -> dict[str, Json]:
    """`base` with `over` on top: tables merge key by key, but a `use` is replaced whole."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if key != "use" and isinstance(value, dict) and isinstance(below, dict):
            merged[key] = merge(below, value)
        else:
            merged[key] = value
    return merged


def write_toml(values: Mapping[str, Json]) -> str:
    """TOML text of a configuration; None is left out, keys are sorted with plain values before tables.

    Raises:
        ConfigError: a null in a list, or text that is not Unicode, which TOML cannot hold.
    """
    text = "\n".join(_table(values, ())).strip() + "\n"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"a value is not Unicode text: {error.object[: error.end][-40:]!r}") from None
    return text


def _table(values: Mapping[str, Json], path: tuple[str, ...]) -> list[str]:
    lines: list[str] = []
    tables = {key: value for key, value in values.items() if isinstance(value, dict) and _is_section(path, key)}
    plain = {key: value for key, value in values.items() if key not in tables and value is not None}
    if path and (plain or not tables):
        lines += ["", f"[{'.'.join(map(toml_key, path))}]"]
    lines += [f"{toml_key(key)} = {_value(value)}" for key, value in sorted(plain.items())]
    for key, table in sorted(tables.items()):
        lines += _table(table, (*path, key))
    return lines


def _is_section(path: tuple[str, ...], key: str) -> bool:
    return key != "use" and (
        len(path) == 1 or (not path and key not in ("eval_prompt_data", "apply_chat_template_kwargs"))
    )


def toml_key(key: str) -> str:
    """A key in TOML syntax, quoted if necessary."""
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else _string(key)


def _string(text: str) -> str:
    # JSON strings are valid TOML, except one character that TOML requires escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Json) -> str:
    match value:
        case dict():
            given = {key: each for key, each in value.items() if each is not None}
            return "{" + ", ".join(f"{toml_key(key)} = {_value(each)}" for key, each in given.items()) + "}"
        case list():
            return "[" + ", ".join(map(_value, value)) + "]"
        case str():
            return _string(value)
        case None:
            raise ConfigError("a list holds null, which a run file cannot: leave it out")
        case float():
            return repr(value)  # also inf and nan, by TOML's names
        case _:
            return json.dumps(value)
