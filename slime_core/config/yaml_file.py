"""Run files in YAML 1.2, with the keys of TOML: `1e-6` is a number, `yes` a text, and a key twice is refused.

Example:

    read_yaml("{lr: 1e-6, reward: {use: math}}", Path("run.yaml"))      # {"lr": 1e-06, "reward": {"use": "math"}}
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from slime_core.errors import ConfigError
from slime_core.sample import Json

if TYPE_CHECKING:
    from ruamel.yaml.nodes import Node

SUFFIXES = (".yaml", ".yml")
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
    """Refuse an alias inside its own anchor, and aliases that multiply: `<<` and each walk repeat them."""
    sizes: dict[int, int] = {}
    unfinished: set[int] = set()

    def size(node: "Node") -> int:
        """Characters and values of a node with every alias written out."""
        if id(node) in unfinished:
            line = node.start_mark.line + 1
            raise ConfigError(f"{path}, line {line}: an anchor holds an alias of itself: write the value out")
        if id(node) not in sizes:
            unfinished.add(id(node))
            sizes[id(node)] = 1 + (len(node.value) if isinstance(node.value, str) else sum(map(size, _inner(node))))
            unfinished.discard(id(node))
        return sizes[id(node)]

    if (written_out := size(root)) > MAX_WRITTEN_OUT:
        raise ConfigError(
            f"{path}: its aliases stand for {written_out:.3g} characters; at most {MAX_WRITTEN_OUT} are "
            "allowed: repeat less"
        )


def _inner(node: "Node") -> Iterator["Node"]:
    for each in node.value:
        yield from each if isinstance(each, tuple) else (each,)
