"""Run files: TOML in, TOML out, and the command line's overrides on top.

Example:

    values = merge(read_run_file(Path("run.toml")), {"lr": 1e-5, "reward": {"use": {"math": 1.0}}})
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from slime_core.errors import ConfigError
from slime_core.sample import Json


def read_run_file(path: Path) -> dict[str, Json]:
    """The keys of a TOML run file.

    Raises:
        ConfigError: no such file, not a file, or not TOML (with its line).
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        there = ", ".join(sorted(each.name for each in path.parent.glob("*.toml"))) if path.parent.is_dir() else ""
        hint = f" {path.parent} has {there}." if there else ""
        raise ConfigError(f"no run file {path}.{hint}") from None
    except OSError as error:
        raise ConfigError(f"cannot read run file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from None


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
    """TOML text of a configuration; None is left out, keys are sorted with plain values before tables."""
    return "\n".join(_table(values, ())).strip() + "\n"


def _table(values: Mapping[str, Json], path: tuple[str, ...]) -> list[str]:
    lines: list[str] = []
    tables = {key: value for key, value in values.items() if isinstance(value, dict) and _is_section(path, key)}
    plain = {key: value for key, value in values.items() if key not in tables and value is not None}
    if path and (plain or not tables):
        lines += ["", f"[{'.'.join(map(_key, path))}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in sorted(plain.items())]
    for key, table in sorted(tables.items()):
        lines += _table(table, (*path, key))
    return lines


def _is_section(path: tuple[str, ...], key: str) -> bool:
    """A role's table and the named sections in it; deeper mappings, and `use`, are written inline."""
    return key != "use" and (
        len(path) == 1 or (not path and key not in ("eval_prompt_data", "apply_chat_template_kwargs"))
    )


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else json.dumps(key)


def _value(value: Json) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_value, value)) + "]"
        case _:
            # JSON's strings, numbers and booleans are TOML's too.
            return json.dumps(value, ensure_ascii=False)
