"""Resumes: where a run was continued, a line each time in resumes.jsonl of its folder; curves are marked there.

Example:

    note_resume(Path("runs/first"), rollout_id=20)
    [each.rollout_id for each in read_resumes(Path("runs/first"))]      # [20]
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from slime_core._numbers import count_of, number_of
from slime_core.errors import RunFolderError
from slime_core.nofollow import open_nofollow
from slime_core.telemetry import run_folder_errors

FILE = "resumes.jsonl"
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Resume:
    """One continuation."""

    rollout_id: int
    """Rollouts that the checkpoint contains: the number of the first one that was done anew."""
    time: float
    """Seconds since 1970, UTC."""


def note_resume(run: Path, rollout_id: int) -> None:
    """Append a line.

    Raises:
        RunFolderError: the file cannot be written.
    """
    line = {"schema_version": SCHEMA_VERSION, **asdict(Resume(rollout_id, time.time()))}
    with run_folder_errors(run / FILE, "write"), (run / FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")


def read_resumes(run: Path) -> list[Resume]:
    """Every continuation, oldest first; none of a run that went through in one go. A torn last line is left out.

    Raises:
        RunFolderError: a complete line is not one.
    """
    path = run / FILE
    try:
        with open_nofollow(path) as file:
            text = file.read().decode()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise RunFolderError(f"{path} is not text in UTF-8: {error}") from None
    found = []
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        try:
            value = json.loads(line)
            found.append(Resume(count_of(value["rollout_id"]), number_of(value["time"])))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise RunFolderError(f"{path}, line {number} does not say where the run was continued: {error}") from None
    return found
