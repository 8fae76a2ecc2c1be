"""Where a run was continued: the lines of resumes.jsonl in its folder."""

import json
from dataclasses import dataclass
from pathlib import Path

from slime_core.errors import RunFolderError
from slime_core.outputs import open_nofollow
from slime_core.run.folder import RESUMES
from slime_core.sample import count_of, number_of


@dataclass(frozen=True, slots=True)
class Resume:
    """One continuation."""

    rollout_id: int
    """Rollouts that the checkpoint contains: the number of the first one that was run again."""
    time: float
    """Seconds since 1970, UTC."""


def read_resumes(run: Path) -> list[Resume]:
    """Every continuation, oldest first; empty for a run that was never resumed. A torn last line is left out.

    Raises:
        RunFolderError: a complete line is malformed.
    """
    path = run / RESUMES
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
