"""Run files in YAML 1.2, with the keys of TOML: `1e-6` is a number, `yes` a text, and a key twice is refused.

Example:

    read_yaml("{lr: 1e-6, reward: {use: math}}", Path("run.yaml"))      # {"lr": 1e-06, "reward": {"use": "math"}}
"""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from slime_core.errors import ConfigError
from slime_core.sample import Json

SUFFIXES = (".yaml", ".yml")
"""Of files that are read as YAML; every other run file is TOML."""


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
        from ruamel.yaml.error import MarkedYAMLError, YAMLError
    except ImportError:
        raise ConfigError(
            f"{path}: run files in YAML are read by ruamel.yaml, which is not installed: `pip install ruamel.yaml`, or "
            "write TOML"
        ) from None
    try:
        values = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{line}: {error.problem or error.context}") from None
    except YAMLError as error:
        raise ConfigError(f"{path} is not a YAML file: {error}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds a {type(values).__name__}, expected keys and their values, as lr: 1e-6")
    for place in _unfit(values):
        raise ConfigError(f"{path}: {place}")
    return cast("dict[str, Json]", values)


def _unfit(value: object, path: str = "") -> Iterator[str]:
    """What TOML could not say either: nothing, and keys that are not text."""
    match value:
        case dict():
            for key, each in value.items():
                if not isinstance(key, str):
                    yield f'the key {key!r} of {path or "the file"} is not text: write "{key}"'
                yield from _unfit(each, f"{path}.{key}" if path else str(key))
        case list():
            for each in value:
                yield from _unfit(each, path)
        case None:
            yield f"{path} has no value: give it one, or leave it out"
        case bytes() | set():
            yield f"{path} is a {type(value).__name__}, which no key takes"
