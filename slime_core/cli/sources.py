"""Sources: the line of help of a command that another package brings, read from its source: nothing is imported for it.

Example:

    help_line(EntryPoint("agent", "slime_agent_openai.commands:agent", "slime.commands"))      # "Agents: serve ..."
"""

import ast
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import EntryPoint
from pathlib import Path

import click

LONGEST = 90
"""Characters of a line."""


def help_line(entry: EntryPoint) -> str:
    """What the command says of itself first, as click would have it; empty where its source does not show it."""
    try:
        spec = _spec(entry.module)
        if spec is None or spec.origin is None:
            return ""
        module = ast.parse(Path(spec.origin).read_text("utf-8"))
    except (OSError, ValueError, SyntaxError):  # whoever calls the command is told what is wrong
        return ""
    functions = (each for each in module.body if isinstance(each, ast.FunctionDef) and each.name == entry.attr)
    said = next((ast.get_docstring(each) for each in functions), None)
    return click.Command(entry.name, help=said).get_short_help_str(LONGEST) if said else ""


def _spec(module: str) -> ModuleSpec | None:
    """Where a module is; `importlib.util.find_spec` would import the packages that it is in."""
    first, *others = module.split(".")
    found = next((spec for finder in sys.meta_path if (spec := finder.find_spec(first, None))), None)
    name = first
    for each in others:
        if found is None or found.submodule_search_locations is None:
            return None
        name = f"{name}.{each}"
        found = PathFinder.find_spec(name, found.submodule_search_locations)
    return found
