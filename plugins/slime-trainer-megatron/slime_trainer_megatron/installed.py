"""Configuration classes of the installed megatron-core, read from its source, because an import takes seconds.

Example:

    fields()["sequence_parallel"].help          # 'Makes tensor parallelism more memory efficient ...'
"""

import ast
import functools
import importlib.util
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from slime_core.errors import PluginError

SOURCES = {
    "ModelParallelConfig": "model_parallel_config.py",
    "TransformerConfig": "transformer/transformer_config.py",
    "OptimizerConfig": "optimizer/optimizer_config.py",
    "DistributedDataParallelConfig": "distributed/distributed_data_parallel_config.py",
}
"""Configuration classes, with their files in megatron/core."""


@dataclass(frozen=True, slots=True)
class Field:
    """An argument of megatron-core."""

    owner: str
    """The class that defines it; if two classes do, the first in `SOURCES`."""
    annotation: str
    """Its type, as source text."""
    default: object
    """Default value; None if it is an expression."""
    help: str
    """Its docstring, in one line."""


@functools.cache
def fields() -> Mapping[str, Field]:
    """Every argument, by name.

    Raises:
        PluginError: megatron-core is missing, or has an unknown source layout.
    """
    home, found = _home(), dict[str, Field]()
    for owner, source in SOURCES.items():
        path = home / source
        if not path.is_file():
            raise PluginError(
                f"trainer 'megatron': {path} is missing, but megatron-core 0.16 has it; install it with `pip install "
                "'megatron-core>=0.16.1,<0.17'`"
            )
        for name, field in _fields_of(ast.parse(path.read_text("utf-8")), owner):
            found.setdefault(name, field)
    return found


def _home() -> Path:
    # A search for "megatron.core" would import it.
    spec = importlib.util.find_spec("megatron")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(place) / "core" / "__init__.py").is_file():
            return Path(place) / "core"
    raise PluginError(
        "trainer 'megatron': megatron-core is not installed; install it with `pip install "
        "'megatron-core>=0.16.1,<0.17'`"
    )


def _fields_of(module: ast.Module, owner: str) -> Iterator[tuple[str, Field]]:
    body = next(each.body for each in module.body if isinstance(each, ast.ClassDef) and each.name == owner)
    for place, line in enumerate(body):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and line.target.id[0] != "_":
            after = body[place + 1] if place + 1 < len(body) else None
            yield line.target.id, Field(owner, ast.unparse(line.annotation), _literal(line.value), _docstring(after))


def _literal(value: ast.expr | None) -> object:
    try:
        return None if value is None else ast.literal_eval(value)
    except ValueError:
        return None


def _docstring(after: ast.stmt | None) -> str:
    if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
        return " ".join(inspect.cleandoc(after.value.value).split())
    return ""
