"""Reads YAML 1.2 files of other frameworks and of a `SlimeRunner`: `1e-6` is a number, `yes` is text."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

from slime_core.config import read_run_file, refuse_unfit
from slime_core.errors import ConfigError
from slime_core.sample import Json

if TYPE_CHECKING:
    from ruamel.yaml.nodes import Node

MAX_EXPANDED_SIZE = 1024 * 1024
"""Maximum characters and values of a file with every alias expanded."""


def read_fields(path: Path) -> dict[str, Json]:
    """The keys of a file: YAML if its suffix is .yaml or .yml, else TOML. Raises ConfigError as `read_yaml`."""
    return read_yaml(path) if path.suffix in (".yaml", ".yml") else read_run_file(path)


def read_yaml(path: Path) -> dict[str, Json]:
    """The keys of a YAML file.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or holds no table or an unsupported value.
    """
    try:
        yaml = YAML(typ="safe", pure=True)
        root = yaml.compose(path.read_text("utf-8-sig"))
        too_long = root is not None and _expanded_size(root, {}) > MAX_EXPANDED_SIZE
        values = None if root is None or too_long else yaml.constructor.construct_document(root)
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist; give the path of an existing file") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{line}: {error.problem or error.context}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not a YAML file: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply; no key needs that many levels: flatten it") from None
    if too_long:
        raise ConfigError(
            f"{path}: its aliases expand to over {MAX_EXPANDED_SIZE} characters, or contain themselves; write their "
            "values instead"
        )
    if not isinstance(values, dict | None):
        raise ConfigError(f"{path} holds a {type(values).__name__}; expected keys with values, such as lr: 1e-6")
    refuse_unfit(values or {}, str(path))
    return cast("dict[str, Json]", values or {})


def _expanded_size(node: "Node", sizes: dict[int, int]) -> int:
    # Nested aliases could exhaust the memory, because `<<` and each traversal expand them.
    if id(node) not in sizes:
        sizes[id(node)] = MAX_EXPANDED_SIZE + 1  # placeholder, so that a node inside itself is too long
        inner = [one for each in node.value for one in (each if isinstance(each, tuple) else (each,))]
        sizes[id(node)] = 1 + (
            len(node.value) if isinstance(node.value, str) else sum(_expanded_size(each, sizes) for each in inner)
        )
    return sizes[id(node)]
