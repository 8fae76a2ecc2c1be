"""Programs whose output follows from their words alone, so that `$(…)` of them can be told without running anything.

Example:

    printed(["basename", "a/b.sh", ".sh"])      # "b"
    printed(["seq", "16", "8", "32"])           # "16 24 32"
    printed(["nvidia-smi", "-L"])               # None
"""

import posixpath
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


def printed(words: Sequence[str]) -> str | None:
    """What a command prints; None where only running it would tell."""
    name, *given = [each for each in words if each != "--"]
    try:
        return _PROGRAMS[name](given)
    except (KeyError, ValueError, IndexError):
        return None


def folder(text: str, beside: Path) -> str:
    """Where `cd TEXT` leads, and `pwd` then prints.

    Args:
        text: a path, relative ones being meant to lie beside the script, as they do when it is run in its folder.
        beside: the folder of the script.
    """
    return str((beside / text).resolve())


def _dirname(given: Sequence[str]) -> str:
    (path,) = given
    return posixpath.dirname(path.rstrip("/")) or ("/" if path.startswith("/") else ".")


def _basename(given: Sequence[str]) -> str:
    path, *suffix = given
    name = posixpath.basename(path.rstrip("/"))
    return name.removesuffix(suffix[0]) if suffix and name != suffix[0] else name


def _seq(given: Sequence[str]) -> str:
    numbers = [int(each) for each in given]
    first = numbers[0] if len(numbers) > 1 else 1
    step = numbers[1] if len(numbers) == 3 else 1
    return " ".join(map(str, range(first, numbers[-1] + (1 if step > 0 else -1), step)))


def _echo(given: Sequence[str]) -> str:
    if given and given[0].startswith("-"):
        raise ValueError("an option")
    return " ".join(given)


_PROGRAMS: Mapping[str, Callable[[Sequence[str]], str]] = {
    "basename": _basename,
    "dirname": _dirname,
    "echo": _echo,
    "seq": _seq,
}
PURE = frozenset(_PROGRAMS)
"""Those that are known."""
