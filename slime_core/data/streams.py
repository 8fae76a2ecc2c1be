"""Streams: where a `PromptSource` takes one prompt after the other; `FileStream` goes round a table for ever.

A stream is at an exact place, which is a few numbers.

Example:

    stream = FileStream("train.jsonl", table, seed=42, shuffle=True)
    taken = stream.next()
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, cast

from slime_core.data.order import EpochOrder
from slime_core.data.prompt_table import PromptTable
from slime_core.data.row_reader import Prompt
from slime_core.errors import CheckpointError
from slime_core.sample import Json
from slime_core.seeds import derive_seed


class Taken(NamedTuple):
    """A prompt and its place."""

    source: str
    """Name of its data set."""
    epoch: int
    """Which pass over it, from 0."""
    row: int
    """Row number in it, from 0."""
    prompt: Prompt
    """The prompt; nobody else holds it."""


class Stream(Protocol):
    """An endless sequence of prompts with an exact place."""

    name: str
    """Unique in a source."""

    def next(self) -> Taken:
        """The next prompt."""
        ...

    def __len__(self) -> int:
        """Prompts in one epoch."""
        ...

    def named_choices(self) -> Mapping[tuple[str, str], str]:
        """Rewards and generators that rows choose in their metadata, and the first row of each."""
        ...

    def data_metrics(self) -> Mapping[str, float]:
        """What was read, and what was left out."""
        ...

    def data_notes(self) -> Sequence[str]:
        """A sentence about each kind of row that was left out."""
        ...

    def identity(self) -> dict[str, Json]:
        """What its place is a place in."""
        ...

    def state_dict(self) -> dict[str, Json]:
        """The place in the stream, for a checkpoint."""
        ...

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Go to a place, or to the nearest that there is if the data has changed."""
        ...


class FileStream:
    """The rows of a table, epoch after epoch, each in an order of its own if shuffled."""

    def __init__(self, name: str, table: PromptTable, seed: int, *, shuffle: bool) -> None:
        """At the first row of epoch 0."""
        self.name = name
        self.table = table
        self._seed, self._shuffle = seed, shuffle
        self._epoch, self._offset = 0, 0
        self._order = self._order_of(0)

    def next(self) -> Taken:
        """The next prompt; after the last, another epoch begins."""
        if self._offset >= len(self.table):
            self._epoch, self._offset = self._epoch + 1, 0
            self._order = self._order_of(self._epoch)
        number = self._order[self._offset]
        self._offset += 1
        return self.taken(number)

    def taken(self, number: int) -> Taken:
        """A row of the table in the current epoch; the place stays."""
        source, row, prompt = self.table[number]
        return Taken(source, self._epoch, row, prompt)

    def __len__(self) -> int:
        return len(self.table)

    def named_choices(self) -> Mapping[tuple[str, str], str]:
        """Rewards and generators that rows choose in their metadata, and the first row of each."""
        return self.table.named

    def data_metrics(self) -> Mapping[str, float]:
        """Counts over all files, and the epoch."""
        return {
            "prompts": float(len(self.table)),
            "filtered": float(sum(part.left_out.too_long for part in self.table.parts)),
            "bad_rows": float(sum(part.left_out.bad for part in self.table.parts)),
            "epoch": float(self._epoch),
        }

    def data_notes(self) -> Sequence[str]:
        """A sentence about each kind of row that was left out of a file."""
        return [note for part in self.table.parts for note in part.left_out.notes(part.name)]

    def identity(self) -> dict[str, Json]:
        """Each file by its content, wherever it lies and whenever it was written."""
        return {part.name: {"prompts": part.prompts, "digest": part.digest} for part in self.table.parts}

    def state_dict(self) -> dict[str, Json]:
        """Epoch, and rows of it that are taken."""
        return {"epoch": self._epoch, "offset": self._offset}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue at a place; one behind the last row is the end of its epoch."""
        epoch, offset = cast(int, state["epoch"]), cast(int, state["offset"])
        if epoch < 0 or offset < 0:
            raise CheckpointError(f"the saved position in {self.name} is epoch {epoch}, row {offset}")
        self._epoch, self._offset = epoch, offset
        self._order = self._order_of(epoch)

    def _order_of(self, epoch: int) -> Sequence[int] | EpochOrder:
        size = len(self.table)
        if not self._shuffle:
            return range(size)
        return EpochOrder(size, derive_seed(self._seed, self.name, "shuffle", epoch))
