"""The order in which prompts are drawn: endless passes over a table, shuffled epochs, and mixtures by weight.

Each position is a few numbers, and each entry is computed on demand. A shuffle needs no list in memory, and a
resume continues at exactly the same prompt.

Example:

    stream = FileStream("train.jsonl", table, seed=42, shuffle=True)
    taken = stream.next()
    turns = Interleaving([0.75, 0.25], seed=42)
    turns.member(0)
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import isqrt
from random import Random
from typing import NamedTuple, Protocol, cast

from slime_core.data.prompt_table import PromptTable
from slime_core.data.row_reader import Prompt
from slime_core.errors import CheckpointError
from slime_core.sample import Json
from slime_core.seeds import derive_seed

# EpochOrder: a pseudo-random permutation whose every entry is computed when it is asked for.

ROUNDS = 4
"""Each mixes both coordinates once."""
SMALL = 64
"""Up to this size there are twice as many: permutations of five rows are visibly uneven after four, not after eight."""


class EpochOrder:
    """Position in the epoch -> row."""

    def __init__(self, size: int, seed: int) -> None:
        """Draw the tables that the order follows from.

        Args:
            size: rows, at least one.
            seed: decides the order.
        """
        self._size = size
        self._width = isqrt(size - 1) + 1
        self._height = -(-size // self._width)
        # `random()` alone: of all its methods Python promises that this one draws alike in every version.
        draw = Random(seed).random
        self._tables = [
            (
                [int(draw() * self._width) for _ in range(self._height)],
                [int(draw() * self._height) for _ in range(self._width)],
            )
            for _ in range(2 * ROUNDS if size <= SMALL else ROUNDS)
        ]

    def __getitem__(self, position: int) -> int:
        if not 0 <= position < self._size:
            raise IndexError(f"position {position} in an epoch of {self._size} rows")
        width, height = self._width, self._height
        while True:
            y, x = divmod(position, width)
            for across, down in self._tables:
                x = (x + across[y]) % width
                y = (y + down[x]) % height
            position = y * width + x
            if position < self._size:
                return position

    def __len__(self) -> int:
        return self._size


# Streams: where a `PromptSource` takes one prompt after the other; `FileStream` goes round a table for ever.


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


# Interleaving: which member of a mixture each draw goes to, by weight and seed.

BLOCK = 256
"""Draws that are dealt together."""


class Interleaving:
    """Draw -> member."""

    def __init__(self, weights: Sequence[float], seed: int) -> None:
        """Take the weights, positive and finite, of any sum."""
        total = sum(weights)
        self._bounds = list(accumulate(weight / total for weight in weights))
        self._seed = seed
        self._block: tuple[int, list[int]] = (-1, [])

    def member(self, draw: int) -> int:
        """Number of the member that a draw goes to."""
        number, offset = divmod(draw, BLOCK)
        if self._block[0] != number:
            self._block = (number, self._deal(number))
        return self._block[1][offset]

    def _deal(self, number: int) -> list[int]:
        """One block by systematic sampling, in random order."""
        draw = Random(derive_seed(self._seed, "mixture", number)).random
        start, last = draw(), len(self._bounds) - 1
        members = [min(bisect_right(self._bounds, (turn + start) / BLOCK), last) for turn in range(BLOCK)]
        keys = [draw() for _ in members]
        return [members[turn] for turn in sorted(range(BLOCK), key=keys.__getitem__)]
