"""Model types: slime's model names (`scripts/models/`), checked against a model directory or found for one.

Example:

    check_model_type("qwen3-4B", Path("models/Qwen3-4B"))       # ConfigError if the directory has another model
    names_by_size({"num_hidden_layers": 36, "hidden_size": 2560, ...})        # ("qwen3-4B", "qwen3-4B-Instruct-2507")
"""

import functools
import json
import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import cast

from slime_core.errors import ConfigError, did_you_mean
from slime_core.sample import Json

ALTERNATIVE_KEYS = {"num_experts": ("n_routed_experts", "num_local_experts")}
"""Alternative names of a size in some model families."""
Sizes = Mapping[str, int]


@functools.cache
def model_types() -> Mapping[str, Sizes]:
    """The sizes of each model, by the keys of config.json."""
    return cast("dict[str, Sizes]", tomllib.loads(files(__package__).joinpath("models.toml").read_text("utf-8")))


def check_model_type(name: str, directory: Path) -> None:
    """Check that a directory holds the named model.

    Raises:
        ConfigError: slime has no such name, or the model has other sizes.
    """
    _check_name(name, "model_type")
    try:
        config = json.loads((directory / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        message = f"model_type = {name!r} must match {directory}/config.json, which cannot be read: {error}"
        raise ConfigError(message) from None
    check_sizes(name, config, "model_type", f"the model in {directory}")


def check_sizes(name: str, config: Mapping[str, Json], key: str, model: str) -> None:
    """Check that a config.json has the sizes of the named model.

    Args:
        name: slime's name of the model.
        config: the content of config.json.
        key: the setting with the name, for error messages.
        model: a description of the model, for error messages.

    Raises:
        ConfigError: slime has no such name, or the model has other sizes.
    """
    _check_name(name, key)
    wrong = [
        f"{each} {size}, but config.json has {found}" for each, size, found in _compared(name, config) if size != found
    ]
    if wrong:
        others = names_by_size(config)
        hint = f" It has the sizes of {' or '.join(map(repr, others))}." if others else ""
        raise ConfigError(f"{key} = {name!r} does not fit {model}: {'; '.join(wrong)}.{hint}")


def _check_name(name: str, key: str) -> None:
    if name not in model_types():
        raise ConfigError(
            f"{key} = {name!r}: slime's scripts/models has no {name!r}.{did_you_mean(name, model_types())} The name is "
            f"only a check of the model directory; leave {key} out to skip it"
        )


def names_by_size(config: Mapping[str, Json]) -> tuple[str, ...]:
    """The names of the models that have the sizes of a config.json."""
    return tuple(
        name
        for name in model_types()
        if (pairs := list(_compared(name, config))) and all(size == found for _, size, found in pairs)
    )


def _compared(name: str, config: Mapping[str, Json]) -> Iterator[tuple[str, int, Json]]:
    inner = config.get("text_config")
    sizes = inner if isinstance(inner, dict) else config
    for key, size in model_types()[name].items():
        found = next((sizes[each] for each in (key, *ALTERNATIVE_KEYS.get(key, ())) if each in sizes), None)
        if found is not None:
            yield key, size, found
