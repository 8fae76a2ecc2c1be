"""Reads and writes run files in TOML, and merges a run file with overrides from the command line.

The table `[plugins]` is parsed here. Values are limited to text, 64-bit numbers, lists and tables.

Example:

    values = merge(read_run_file(Path("run.toml")), {"lr": 1e-5, "reward": {"use": {"math": 1.0}}})
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
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
    """The table as plain data; what its names mean is found when plugins are loaded.

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
    """The table that says the same; empty keys are left out."""
    lists = {key: getattr(plugins, key) for key in KEYS}
    return {key: list(names) for key, names in lists.items() if names or (key == "only" and names is not None)}


def add_plugins(
    values: Mapping[str, Json],
    asked: Sequence[str],
    left_out: Sequence[str],
    only: Sequence[str] | None = None,
) -> dict[str, Json]:
    """A run file's values with plugins added to its table.

    Args:
        values: the run file's.
        asked: `--plugin`: required plugins, placed before the file's; or modules of the project.
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
    joined: dict[str, list[str]] = {
        "require": [*names, *file.require],
        "without": [*file.without, *left_out],
        "modules": [*file.modules, *modules],
    }
    table: dict[str, Json] = {key: list(dict.fromkeys(each)) for key, each in joined.items() if each}
    allowed = file.only if only is None else only
    return {**values, TABLE: table if allowed is None else {**table, "only": list(allowed)}}


# What any value of a run may be, before a type looks at it: text, numbers of 64 bits, lists and tables, a few deep.

MAX_DEPTH = 32
"""Tables and lists in each other."""
MAX_NAME = 1_000
"""Characters of a key."""
_SHOWN = 80


def refuse_unfit(value: object, where: str, *, allow_null: bool = False) -> None:
    """Refuse a value that no key of any type takes.

    Args:
        value: what a parser returned.
        where: the file or flag, for messages.
        allow_null: accept null, as JSON on the command line may say it.

    Raises:
        ConfigError: naming the place of the first such value, what is wrong with it and what is allowed.
    """
    for problem in _problems(value, "", allow_null):
        raise ConfigError(f"{where}: {problem}")


def shown(value: object) -> str:
    """A value for a message, cut to the length that a line can bear."""
    text = repr(value)
    return text if len(text) <= 2 * _SHOWN else f"{text[:_SHOWN]} [...] {text[-_SHOWN:]}"


def _problems(value: object, path: str, allow_null: bool, depth: int = 0) -> Iterator[str]:
    place = path if 0 < len(path) <= 2 * _SHOWN else f"{path[:_SHOWN]}[...]" if path else "the value"
    if depth > MAX_DEPTH:
        yield f"{place} is nested over {MAX_DEPTH} deep, which no key takes: flatten it"
        return
    match value:
        case dict():
            for key, each in value.items():
                if not isinstance(key, str):
                    yield f'the key {key!r} is not text: write "{key}"'
                elif len(key) > MAX_NAME:
                    yield f"the key {shown(key)} has {len(key)} characters; at most {MAX_NAME} are allowed"
                elif fault := _fault(key):
                    yield f"the key {shown(key)} holds {fault}: take it out"
                yield from _problems(each, f"{path}.{key}" if path else str(key), allow_null, depth + 1)
        case list():
            for each in value:
                yield from _problems(each, path, allow_null, depth + 1)
        case str() if fault := _fault(value):
            yield f"{place} = {shown(value)} holds {fault}: take it out"
        case int() if not -(2**63) <= value < 2**63:
            yield f"{place} is an integer of {value.bit_length()} bits; at most 64 are allowed"
        case None if not allow_null:
            yield f"{place} has no value: give it one, or leave it out"
        case bool() | int() | float() | str() | None:
            pass
        case _:
            yield f'{place} is a date or time, which no key takes: write it as text, "{value}"'


def _fault(text: str) -> str:
    if "\0" in text:
        return "a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "half a surrogate pair, which is not Unicode text"
    return ""


# Run files: TOML in and out, and the command line's overrides on top.

MAX_BYTES = 256 * 1024
"""Of a run file."""
_MOST_DOTS = 4000
_LONG_INTEGER = "an integer has over 4300 digits; at most 64 bits are allowed"
_UNKNOWN = re.compile(r"^unknown (?:key|setting) '?(?:(?:[\w-]+|\"[^\"]*\")\.)*([\w-]+)")


def read_run_file(path: Path) -> dict[str, Json]:
    """The keys of a run file.

    Raises:
        ConfigError: no such file, not a file, over `MAX_BYTES`, not TOML (with its line), or a value that no key takes.
    """
    try:
        text = _read_text(path)
        # tomllib's time grows with the square of a dotted key's length: minutes for 100,000 parts.
        for number, line in enumerate(text.split("\n"), 1):
            if any(part.count(".") > _MOST_DOTS for part in line.split("=")):
                raise ConfigError(f"{path}, line {number}: a dotted key has over {MAX_DEPTH} parts, which no key has")
        values = tomllib.loads(text)
    except ConfigError:
        raise
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply: at most {MAX_DEPTH} tables and lists in each other") from None
    except ValueError as error:  # not TOML, not UTF-8, or a long integer
        said = _LONG_INTEGER if "int_max_str_digits" in str(error) else shortened(" ".join(str(error).split()))
        raise ConfigError(f"{path} is not a TOML file: {said}") from None
    refuse_unfit(values, str(path))
    return values


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)  # a device or a pipe has no size to look at
    except FileNotFoundError:
        there = ", ".join(sorted(each.name for each in path.parent.glob("*.toml")))
        hint = f" {path.parent} has {there}." if there else ""
        raise ConfigError(f"no run file {path}.{hint}") from None
    except OSError as error:
        raise ConfigError(f"cannot read run file {path}: {error.strerror}") from None
    if path.suffix in (".yaml", ".yml"):
        raise ConfigError(
            f"{path}: a run file is TOML, with a name that ends in .toml: write `key: value` as key = value"
        )
    if len(content) > MAX_BYTES:
        raise ConfigError(
            f"{path} has over {MAX_BYTES // 1024} KiB, more than a run file may have: name the run's own file; prompts "
            "belong in prompt_data"
        )
    return content.decode("utf-8-sig").replace("\r\n", "\n")  # some editors begin with a byte order mark


def say_lines(message: str, path: Path) -> str:
    """A message about keys with the line of each that is unknown in front.

    Args:
        message: a sentence a line, as `parse_config` says them.
        path: the run file.
    """
    sentences = message.splitlines()
    unknown = [match[1] if (match := _UNKNOWN.match(each)) else "" for each in sentences]
    if not any(unknown):
        return message  # the file may be one that cannot be read
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    for place, key in enumerate(unknown):
        setting = re.compile(rf"""(?:^|[\s{{,])["']?{re.escape(key)}["']?\s*=""")
        at = [number for number, line in enumerate(lines, 1) if key and setting.search(line.partition("#")[0])]
        if len(at) == 1:
            sentences[place] = f"{path}, line {at[0]}: {sentences[place]}"
    return "\n".join(sentences)


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
    """A key as TOML spells it: quoted where it must be."""
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else _string(key)


def _string(text: str) -> str:
    # JSON's strings are TOML's, but for one character that TOML wants escaped.
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
