"""Which SGLang, or router, a Python has, found without importing it, and whether this package knows how to talk to it.

Example:

    version = installed_version(Path(".venv-sglang/bin/python"))        # "0.5.23"; None: there is none
    installed_version(Path(".venv-routers/bin/python"), "smg")          # "1.13.0"
    check_version(version, "in .venv-sglang/bin/python")                # or a ValueError, or a warning
"""

import functools
import importlib.metadata
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Self

OLDEST, NEWEST = "0.5.9", "0.5.23"
"""The releases whose wire is known."""
MASKS, SPANS, SESSIONS = (0, 5, 16), (0, 5, 19), (0, 5, 21)
"""Since when there are `return_sampling_mask`, `weight_versions` and `/begin_weight_update`."""
ASK_S = 20.0
"""Seconds that a Python may take to say what it has."""
QUESTION = "import importlib.metadata as m; print('{0}', m.version('{0}'))"


class SglangWarning(UserWarning):
    """Something about SGLang that may matter, and need not."""


def installed_version(python: Path | None, program: str = "sglang") -> str | None:
    """The release of SGLang, or of another program, in a Python, or in this one; None where it has none.

    Raises:
        ValueError: the Python cannot say.
    """
    if python is None or str(python) == sys.executable:
        try:
            return importlib.metadata.version(program)
        except importlib.metadata.PackageNotFoundError:
            return None
    python = Path(shutil.which(python) or python)
    # Beside an interpreter as virtual environments and conda have it; to start one costs a tenth of a second.
    folders = sorted(python.parent.parent.glob("lib/python3*/site-packages"))
    start = program.replace("-", "_") + "-"
    found = [each for folder in folders for each in sorted(folder.glob(f"{start}*.dist-info"))]
    if found:
        return found[0].name.removeprefix(start).removesuffix(".dist-info")
    return None if folders and (python.parent.parent / "pyvenv.cfg").exists() else _asked(python, program)


def _asked(python: Path, program: str) -> str | None:
    question = QUESTION.format(program)
    try:
        asked = subprocess.run([python, "-c", question], capture_output=True, text=True, timeout=ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"{python} was asked which {program} it has, and did not answer: {error}") from None
    said = re.search(rf"^{program} (\S+)$", asked.stdout, re.MULTILINE)
    return said[1] if said else None


def check_version(version: str, where: str) -> None:
    """Refuse a release that is too old; warn of one that nobody has tried.

    Raises:
        ValueError: it is older than the oldest that is known.
    """
    number = _number(version)
    if number < _number(OLDEST):
        raise ValueError(
            f"SGLang {version} {where} is too old: this engine speaks to {OLDEST} up to {NEWEST}; "
            f"pip install sglang=={NEWEST} there"
        )
    if number > _number(NEWEST):
        _warn_once(f"SGLang {version} {where} is newer than any that this engine was tried with, {OLDEST} to {NEWEST}")


@functools.cache
def _warn_once(text: str) -> None:
    """Warn once for each text: an engine that is replaced has nothing new to say."""
    warnings.warn(text, SglangWarning, stacklevel=3)


@dataclass(frozen=True, slots=True)
class Release:
    """The abilities that not every release of SGLang has."""

    version: str
    """Its number."""
    has_spans: bool
    """Whether an answer says which weights made which of its tokens."""
    has_sessions: bool
    """Whether weights are sent between `/begin_weight_update` and `/end_weight_update`."""
    has_masks: bool
    """Whether an answer says which candidates top-p kept."""

    @classmethod
    def of(cls, version: str) -> Self:
        """The abilities of a version."""
        number = _number(version)
        return cls(version, number >= SPANS, number >= SESSIONS, number >= MASKS)


def _number(version: str) -> tuple[int, ...]:
    """What releases are ordered by: 0.5.12.post1 as 0.5.12, 0.5.24rc1 as 0.5.24."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


NEWEST_RELEASE = Release.of(NEWEST)
