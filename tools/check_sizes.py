"""Keep modules and functions small enough to read: at most 600 lines a module, 70 lines a function.

    .venv/bin/python tools/check_sizes.py

Prints every one that is over and exits 1. A file is opened for one question: 150 to 350 lines is normal.
Tests are left out: a long table of cases is fine there.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

LONGER: dict[str, str] = {}
"""Modules that may be over the limit, each with its reason: `"slime_core/a.py": "the table of all flags"`."""
MODULE_LINES = 600
FUNCTION_LINES = 70
ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("slime_core", "plugins", "tools", "examples", "benchmarks")


def main() -> int:
    """Print what is over a limit and return the exit status."""
    over = [line for path in sources() for line in oversized(path)]
    print("\n".join(over) or f"no module over {MODULE_LINES} lines, no function over {FUNCTION_LINES}")
    return 1 if over else 0


def sources() -> list[Path]:
    """Every Python file of the project that is not a test."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in found if "tests" not in path.relative_to(ROOT).parts)


def oversized(path: Path) -> Iterator[str]:
    """One line of text for the module, and for each function of it, that is over its limit."""
    source = path.read_text("utf-8")
    name = path.relative_to(ROOT).as_posix()
    lines = len(source.splitlines())
    if lines > MODULE_LINES and name not in LONGER:
        yield f"{name}: {lines} lines, at most {MODULE_LINES}: is it still opened for one question?"
    if lines <= MODULE_LINES and name in LONGER:
        yield f"{name}: {lines} lines: remove it from LONGER"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            length = node.end_lineno - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{name}:{node.lineno}: {node.name} has {length} lines, at most {FUNCTION_LINES}"


if __name__ == "__main__":
    sys.exit(main())
