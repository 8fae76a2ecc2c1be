"""OpenRun: one open run folder: its curves, the index of its samples, its tokenizer, a group's history.

Example:

    (run,) = OpenRun.all([Path("runs/first")])
    while run.refresh(): ...
    run.sample(run.index.find(Query()).places[0])
"""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from slime_core.config import read_run_file
from slime_core.data import HfTokenizer, name_files
from slime_core.errors import ConfigError, ModelError, RunFolderError
from slime_core.outputs import check_tree, nofollow
from slime_core.run import GroupState
from slime_core.sample import Json, Sample
from slime_view.curves import Curves
from slime_view.index import Place, Query, SampleIndex, search
from slime_view.ledger_view import Resume, read_resumes
from slime_view.run_reader import Alarm, GroupHistory, group_history, read_alarms
from slime_view.samples import Kind, Shard, list_shards
from slime_view.samples.shard import read_columns, read_rows
from slime_view.tokens import tokens_of, trained_values
from slime_view.transcripts import prompt_text

SHOWN = 160
"""Maximum characters of a text in a table."""
LISTED = (
    "rollout_id",
    "source",
    "group",
    "index",
    "status",
    "drop_reason",
    "failure_reason",
    "left_out",
    "reward",
    "response_length",
    "prompt",
    "messages",
    "response",
    "label",
)


class OpenRun:
    """One run folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.curves = Curves(folder / "metrics.jsonl")
        self.index = SampleIndex(folder / "samples")
        self.resumed: list[Resume] = []
        """The continuations of the run."""
        self.alarms: list[Alarm] = []
        """Alarms raised by its metrics."""
        self._heard = (-1, -1)
        self.problem = ""
        """The read error found so far; empty without one."""

    @classmethod
    def all(cls, folders: Sequence[Path]) -> "list[OpenRun]":
        """Open several run folders; folders with equal names are also named after their parents.

        Raises:
            RunFolderError: one is not a run folder.
        """
        found = list(dict.fromkeys(folder.resolve() for folder in folders))
        for folder in found:
            if not nofollow(folder / "run.toml").is_file():
                raise RunFolderError(
                    f"{folder} is not a run folder: it has no run.toml. Give the folder named by --save."
                )
        return [cls(folder, name) for folder, name in name_files([str(folder) for folder in found])]

    def refresh(self) -> bool:
        """Read new data; returns whether there is more. An unreadable file sets `problem`; the rest is still shown."""
        problems = []
        try:
            self.curves.refresh()
            self.resumed = read_resumes(self.folder)
            if (now := (self.curves.generation, len(self.curves))) != self._heard:
                self._heard, self.alarms = now, read_alarms(self.folder)
        except RunFolderError as error:
            problems.append(str(error))
        more = self.index.refresh()
        self.problem = "\n".join([*problems, *self.index.damaged.values()])
        return more

    def state(self) -> dict[str, Json]:
        """The run's progress, which a page polls."""
        return {
            "name": self.name,
            "folder": str(self.folder),
            "generation": self.curves.generation,
            "rows": len(self.curves),
            "metrics": [*sorted(self.curves.columns)],
            "rollout": max(self.curves.rollouts, default=None),
            "samples": len(self.index),
            "waiting": self.index.waiting,
            "resumed": [each.rollout_id for each in self.resumed],
            "alarms": [{"rollout": each.rollout_id, "name": each.name, "text": str(each)} for each in self.alarms],
            "problem": self.problem,
        }

    def choices(self) -> dict[str, Json]:
        """Available values of each filter."""
        index = self.index
        return {"source": [*index.sources.all()], "status": [*index.statuses.all()], "reason": [*index.reasons.all()]}

    def table(self, query: Query) -> dict[str, Json]:
        """A page of samples.

        Raises:
            RunFolderError: a file cannot be read.
        """
        if query.text:
            hits = search(self.index, query)
            return {"rows": self._listed(hits.places), "after": hits.after, "searched": hits.searched}
        found = self.index.find(query)
        return {"rows": self._listed(found.places), "count": found.count, "offset": query.offset}

    def _listed(self, places: Sequence[Place]) -> list[Json]:
        rows: dict[Place, Json] = {}
        for path in {place.path for place in places}:
            numbers = sorted(place.row for place in places if place.path == path)
            for number, row in zip(numbers, read_rows(path, numbers, LISTED), strict=True):
                rows[Place(path, number)] = {"file": path.stem, "row": number, **_shortened(row)}
        return [rows[place] for place in places]

    def place(self, file: str, row: str) -> Place:
        """The location of a sample, from the parts of its address.

        Raises:
            ConfigError: the address is invalid, or the file does not exist.
        """
        paths = {path.stem: path for kind in Kind for path in list_shards(self.folder / "samples", kind)}
        if file not in paths or not row.isdecimal():
            raise ConfigError(f"{self.name} has no sample {file}:{row}; its files may have been deleted or rewritten")
        return Place(paths[file], int(row))

    def sample(self, place: Place) -> dict[str, Json]:
        """Everything about one sample: its record, and its tokens with their known values.

        Raises:
            RunFolderError: its file cannot be read.
        """
        entry = Shard(place.path).entry(place.row)
        trained, where = self._trained(entry.group, entry.sample)
        return {
            "file": place.path.stem,
            "row": place.row,
            "group": entry.group,
            "source": entry.source,
            "drop_reason": entry.drop_reason,
            "left_out": entry.left_out,
            "record": entry.sample.to_dict(),
            "prompt_text": prompt_text(entry.sample.prompt),
            "tokens": tokens_of(entry.sample, self.tokenizer, trained),
            "trained_in": where,
            "keeps_train_data": self._train_data is not None,
            "no_tokenizer": self._tokenizer[1],
        }

    def group(self, name: str) -> list[Json]:
        """The samples of a group; none if its file was deleted, or is not written yet.

        Raises:
            RunFolderError: a file cannot be read.
        """
        path = self.file_of(name)
        if path is None:
            return []
        rows = _rows_of(path, name)
        found = read_rows(path, rows, LISTED)
        return [{"file": path.stem, "row": at, **row} for at, row in zip(rows, found, strict=True)]

    def file_of(self, group: str) -> Path | None:
        """The file with a group's samples, written by the rollout that finished it.

        Raises:
            RunFolderError: a file cannot be read.
        """
        try:
            moves = group_history(self.folder, group)
        except RunFolderError:  # of a run without a ledger
            moves = []
        shards = {int(path.stem.rpartition("_")[2]): path for path in list_shards(self.folder / "samples")}
        rollouts = dict.fromkeys(int(str(move["rollout_id"])) for move in moves)
        paths = (shards[number] for number in rollouts if number in shards)
        return next((path for path in paths if _rows_of(path, group)), None)

    def life(self, name: str) -> list[Json]:
        """A group's history, move by move.

        Raises:
            SlimeError: the run has no such group, or a file cannot be read.
        """
        return [move.to_dict() for move in GroupHistory.of(self.folder, name).moves]

    def _trained(self, group: str | None, sample: Sample) -> tuple[Mapping[str, Sequence[float]], int | None]:
        if group is None or self._train_data is None:
            return {}, None
        for move in group_history(self.folder, group):
            if move["state"] == GroupState.TRAINED.value:
                rollout_id = int(str(move["rollout_id"]))
                if values := trained_values(self._train_data, rollout_id, sample):
                    return values, rollout_id
        return {}, None

    @cached_property
    def _settings(self) -> Mapping[str, Json]:
        return read_run_file(nofollow(self.folder / "run.toml"))

    @property
    def _train_data(self) -> str | None:
        template = self._settings.get("save_debug_train_data")
        return template if isinstance(template, str) else None

    @property
    def tokenizer(self) -> HfTokenizer | None:
        """The tokenizer of the run's model; None if it cannot be loaded."""
        return self._tokenizer[0]

    @cached_property
    def _tokenizer(self) -> tuple[HfTokenizer | None, str]:
        problem = ""
        saved = sorted(self.folder.glob("checkpoints/*/hf"), reverse=True)
        for model in [Path(str(self._settings["hf_checkpoint"])), *saved]:
            try:
                if model in saved:
                    check_tree(nofollow(model, 3))
                return HfTokenizer.load(model), ""
            except (ModelError, RunFolderError) as error:
                problem = problem or str(error)
        return None, problem


def _rows_of(path: Path, group: str) -> list[int]:
    return [at for at, row in enumerate(read_columns(path, ["group"])) if row["group"] == group]


def _shortened(row: Mapping[str, Json]) -> dict[str, Json]:
    messages = row["messages"]
    prompt = row["prompt"] if messages is None else _last_message(str(messages))
    found = {name: value for name, value in row.items() if name != "messages"}
    return found | {"prompt": str(prompt)[:SHOWN], "response": str(row["response"])[:SHOWN]}


def _last_message(messages: str) -> str:
    conversation = json.loads(messages)
    return str(conversation[-1].get("content", "")) if conversation else ""
