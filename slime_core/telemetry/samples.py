"""Transcripts: what the model was asked and what it wrote, a small jsonl file per rollout and per evaluation.

log = SampleLog(run_dir / "samples")
log.write(0, kept_groups)                       # samples/rollout_000000.jsonl
log.write_eval(20, {"chain": samples})          # samples/eval_000020.jsonl
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from slime_core.errors import RunFolderError
from slime_core.sample import Group, Json, Message, Sample
from slime_core.secrets import REDACTOR
from slime_core.telemetry._errors import run_folder_errors
from slime_core.telemetry.metrics import read_lines

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One line of a samples file."""

    rollout_id: int
    """Number of the rollout; for an evaluation, rollouts done before it."""
    source: str
    """Name of the data set."""
    group: str | None
    """The group's identity; None in an evaluation."""
    index: int
    """Number of the sample within its group, or within its data set in an evaluation, from 0."""
    prompt: str | list[Message]
    """What the model was asked."""
    response: str
    """What it wrote."""
    response_length: int
    """Tokens of the response."""
    label: Json
    """The gold answer."""
    reward: float | Mapping[str, float] | None
    """The reward; None where scoring failed."""
    status: str
    """The value of the sample's `Status`."""
    weight_versions: list[str]
    """Weight version of each engine call."""

    def to_dict(self) -> dict[str, Json]:
        """The line as plain JSON."""
        prompt: Json = self.prompt if isinstance(self.prompt, str) else [dict(message) for message in self.prompt]
        reward: Json = dict(self.reward) if isinstance(self.reward, Mapping) else self.reward
        return {
            "schema_version": SCHEMA_VERSION,
            "rollout_id": self.rollout_id,
            "source": self.source,
            "group": self.group,
            "index": self.index,
            "prompt": prompt,
            "response": self.response,
            "response_length": self.response_length,
            "label": self.label,
            "reward": reward,
            "status": self.status,
            "weight_versions": list(self.weight_versions),
        }


class SampleLog:
    """Writes samples files, each whole or not at all; writing one again, after a resume, replaces it.

    Args:
        directory: where; made if needed.
        groups: groups kept per rollout, the first ones.
        eval_samples: samples kept per evaluation data set, the first ones.

    Raises:
        RunFolderError: the directory cannot be written.
    """

    def __init__(self, directory: Path, groups: int = 4, eval_samples: int = 64) -> None:
        self.directory, self.groups, self.eval_samples = directory, groups, eval_samples
        with run_folder_errors(directory, "make"):
            directory.mkdir(parents=True, exist_ok=True)

    def write(self, rollout_id: int, groups: Sequence[Group]) -> Path:
        """Keep a rollout's first groups, in the order given."""
        rows = (
            _row(rollout_id, group.id.source, str(group.id), index, sample)
            for group in groups[: self.groups]
            for index, sample in enumerate(group.samples)
        )
        return self._write(f"rollout_{rollout_id:06d}.jsonl", rows)

    def write_eval(self, rollout_id: int, samples: Mapping[str, Sequence[Sample]]) -> Path:
        """Keep an evaluation's first samples of each data set; the same prompts come first every time."""
        rows = (
            _row(rollout_id, source, None, index, sample)
            for source, those in samples.items()
            for index, sample in enumerate(those[: self.eval_samples])
        )
        return self._write(f"eval_{rollout_id:06d}.jsonl", rows)

    def _write(self, name: str, rows: Iterable[SampleRow]) -> Path:
        path = self.directory / name
        draft = path.with_suffix(".tmp")
        text = "".join(json.dumps(row.to_dict(), ensure_ascii=False) + "\n" for row in rows)
        with run_folder_errors(path, "write"):
            # A model may emit half a surrogate pair; it must not cost the run.
            draft.write_text(text, "utf-8", errors="backslashreplace", newline="\n")
            draft.replace(path)
        return path

    @staticmethod
    def read(path: Path) -> list[SampleRow]:
        """The rows of one file.

        Raises:
            RunFolderError: a line is no samples row; the message names it.
        """
        rows = []
        for number, line in enumerate(read_lines(path), start=1):
            try:
                value = json.loads(line)
                if (version := value.pop("schema_version")) != SCHEMA_VERSION:
                    raise ValueError(f"schema_version {version}, this slime-core reads {SCHEMA_VERSION}")
                rows.append(SampleRow(**value))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise RunFolderError(f"{path}, line {number} is no samples row: {error}") from None
        return rows


def _row(rollout_id: int, source: str, group: str | None, index: int, sample: Sample) -> SampleRow:
    return SampleRow(
        rollout_id=rollout_id,
        source=source,
        group=group,
        index=index,
        # A tool or a judge may have answered with the key that it was asked with.
        prompt=cast("str | list[Message]", REDACTOR.redact_data(sample.prompt)),
        response=REDACTOR.redact(sample.response),
        response_length=sample.response_length,
        label=sample.label,
        reward=sample.reward,
        status=sample.status.value,
        weight_versions=sample.weight_versions,
    )
