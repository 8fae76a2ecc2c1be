"""Reads and writes run files: TOML or YAML in, TOML out, with overrides from the command line.

The table `[plugins]` and the role tables are parsed here. Values are limited to text, 64-bit numbers, lists and
tables. YAML follows version 1.2: `1e-6` is a number, `yes` is text, and a repeated key is an error.

Example:

    values = merge(read_run_file(Path("run.toml")), {"lr": 1e-5, "reward": {"use": {"math": 1.0}}})
    parse_role_table("reward", {"use": ["math"], "math": {"timeout_s": 2.0}}).use        # {"math": 1.0}
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from slime_core.catalog import is_plugin_module
from slime_core.errors import ConfigError, did_you_mean, shortened
from slime_core.roles import PluginSet
from slime_core.sample import Json

if TYPE_CHECKING:
    from ruamel.yaml.nodes import Node


# The run file's table `[plugins]`: which plugins a run loads, and in which order.

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


# Run files in YAML 1.2, with the keys of TOML: `1e-6` is a number, `yes` a text, and a key twice is refused.

YAML_SUFFIXES = (".yaml", ".yml")
"""Of files that are read as YAML; every other run file is TOML."""
MAX_WRITTEN_OUT = 1024 * 1024
"""Characters and values of a file with every alias written out."""


def read_yaml(text: str, path: Path) -> dict[str, Json]:
    """The keys of a run file.

    Args:
        text: what it holds.
        path: where it is, for messages.

    Raises:
        ConfigError: ruamel.yaml is not installed, the text is not YAML (with its line), or no table of keys.
    """
    try:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import MarkedYAMLError
    except ImportError:
        raise ConfigError(
            f"{path}: run files in YAML are read by ruamel.yaml, which is not installed: `pip install ruamel.yaml`, or "
            "write TOML"
        ) from None
    try:
        yaml = YAML(typ="safe", pure=True)
        node = yaml.compose(text)
        if node is None:
            return {}
        _refuse_explosion(node, path)
        values = yaml.constructor.construct_document(node)
    except MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{line}: {error.problem or error.context}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds a {type(values).__name__}, expected keys and their values, as lr: 1e-6")
    return cast("dict[str, Json]", values)


def _refuse_explosion(root: "Node", path: Path) -> None:
    # Of an alias inside its own anchor, and of aliases that multiply: `<<` and each walk would repeat them.
    sizes: dict[int, int] = {}

    def size(node: "Node") -> int:
        if id(node) not in sizes:
            sizes[id(node)] = MAX_WRITTEN_OUT + 1  # until it is known: that of a node inside itself
            inner = [one for each in node.value for one in (each if isinstance(each, tuple) else (each,))]
            sizes[id(node)] = 1 + (len(node.value) if isinstance(node.value, str) else sum(map(size, inner)))
        return sizes[id(node)]

    if size(root) > MAX_WRITTEN_OUT:
        raise ConfigError(
            f"{path}: its aliases stand for over {MAX_WRITTEN_OUT} characters, or hold themselves: write the value out"
        )


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
    cut = path if len(path) <= 2 * _SHOWN else f"{path[:_SHOWN]}[...]"
    place = cut or "the value"
    if depth > MAX_DEPTH:
        yield f"{place} is nested over {MAX_DEPTH} deep, which no key takes: flatten it"
        return
    match value:
        case dict():
            for key, each in value.items():
                if not isinstance(key, str):
                    yield f'the key {shown(key)} of {cut or "the file"} is not text: write "{key}"'
                elif len(key) > MAX_NAME:
                    yield f"the key {shown(key)} has {len(key)} characters; at most {MAX_NAME} are allowed"
                elif fault := _fault(key):
                    yield f"the key {shown(key)} holds {fault}: take it out"
                yield from _problems(each, f"{path}.{key}" if path else str(key), allow_null, depth + 1)
        case list():
            for each in value:
                yield from _problems(each, path, allow_null, depth + 1)
        case date() | time():
            yield f'{place} is a date or time, which no key takes: write it as text, "{value}"'
        case None:
            if not allow_null:
                yield f"{place} has no value: give it one, or leave it out"
        case str():
            if fault := _fault(value):
                yield f"{place} = {shown(value)} holds {fault}: take it out"
        case int() if not -(2**63) <= value < 2**63:
            yield f"{place} is an integer of {value.bit_length()} bits; at most 64 are allowed"
        case bool() | int() | float():
            pass
        case _:
            yield f"{place} is a {type(value).__name__}, which no key takes: write text, numbers, lists or tables"


def _fault(text: str) -> str:
    if "\0" in text:
        return "a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "half a surrogate pair, which is not Unicode text"
    return ""


# Run files: TOML or YAML in, TOML out, and the command line's overrides on top.

RUN_FILES = (".toml", *YAML_SUFFIXES)
"""What the names of run files end in."""
MAX_BYTES = 256 * 1024
"""Of a run file; ruamel.yaml reads about 100 KiB a second."""
_MOST_DOTS = 4000
_LONG_INTEGER = "an integer has over 4300 digits; at most 64 bits are allowed"
_UNKNOWN = re.compile(r"^unknown (?:key|setting) '?(?:(?:[\w-]+|\"[^\"]*\")\.)*([\w-]+)")


def read_run_file(path: Path) -> dict[str, Json]:
    """The keys of a run file: YAML where its name ends so, else TOML.

    Raises:
        ConfigError: no such file, not a file, over `MAX_BYTES`, not TOML or YAML (with its line), or a value that no
            key takes.
    """
    kind = "YAML" if path.suffix in YAML_SUFFIXES else "TOML"
    try:
        text = _read_text(path)
        values = read_yaml(text, path) if kind == "YAML" else _read_toml(text, path)
    except ConfigError:
        raise
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply: at most {MAX_DEPTH} tables and lists in each other") from None
    except Exception as error:  # the parsers raise more than their own types, for example ValueError for a long integer
        said = _LONG_INTEGER if "int_max_str_digits" in str(error) else shortened(" ".join(str(error).split()))
        raise ConfigError(f"{path} is not a {kind} file: {said}") from None
    refuse_unfit(values, str(path))
    return values


def _read_toml(text: str, path: Path) -> dict[str, Json]:
    # tomllib's time grows with the square of a dotted key's length: minutes for 100,000 parts.
    for number, line in enumerate(text.split("\n"), 1):
        if any(part.count(".") > _MOST_DOTS for part in line.split("=")):
            raise ConfigError(f"{path}, line {number}: a dotted key has over {MAX_DEPTH} parts, which no key has")
    return tomllib.loads(text)


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)  # a device or a pipe has no size to look at
    except FileNotFoundError:
        found = (
            [each for suffix in RUN_FILES for each in path.parent.glob(f"*{suffix}")] if path.parent.is_dir() else []
        )
        there = ", ".join(sorted(each.name for each in found))
        hint = f" {path.parent} has {there}." if there else ""
        raise ConfigError(f"no run file {path}.{hint}") from None
    except OSError as error:
        raise ConfigError(f"cannot read run file {path}: {error.strerror}") from None
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
        setting = re.compile(rf"""(?:^|[\s{{,])["']?{re.escape(key)}["']?\s*[:=]""")
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
