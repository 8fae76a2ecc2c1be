"""LeftOut: what rows were not used, how many, and the first bad ones in words.

Example:

    left = LeftOut(row_format)
    left.count(BadRow("train.jsonl:3: no key 'input'"))     # raises, unless bad_rows = "skip"
    left.note("train.jsonl")    # "train.jsonl: left out 1 bad row, the first: train.jsonl:3: no key 'input'"
"""

from collections.abc import Mapping

from slime_core.data.row_reader import TooLong
from slime_core.data.rows import BadRow, RejectedRow
from slime_core.errors import DataError
from slime_core.roles import RowFormat
from slime_core.sample import Json

NO_ROOM = "its prompt has "
"""How the reason of a row begins whose prompt leaves no room for an answer."""
SHOWN = 3
"""Bad rows that an error or a note quotes."""


class UnusableRow(DataError):
    """A bad row where bad rows are errors; made of what is wrong with it, and says what would leave it out."""

    def __str__(self) -> str:
        """With the advice, which only a run can take: `args[0]` is without."""
        return f'{self.args[0]}. (bad_rows = "skip" would leave such rows out and count them.)'


class LeftOut:
    """Counts of one data set."""

    def __init__(self, row_format: RowFormat, kind: str = "prompts") -> None:
        """Nothing is left out yet; `kind` names what `max_prompt_len` is about."""
        self._format, self._kind = row_format, kind
        self.bad, self.too_long = 0, 0
        self.shortest: int | None = None
        """Tokens of the shortest row that was too long."""
        self.without_reasoning = 0
        """Rows that are used, of whose earlier turns the chat template leaves out the reasoning."""
        self._first: list[str] = []

    def count(self, row: BadRow | TooLong) -> None:
        """Count one more row that is left out.

        Raises:
            UnusableRow: it is a bad row, and bad rows are errors. Rejected rows are so in `check`, with their number.
        """
        if isinstance(row, TooLong):
            self.too_long += 1
            self.shortest = row.tokens if self.shortest is None else min(self.shortest, row.tokens)
            return
        if self._format.bad_rows == "raise" and not isinstance(row, RejectedRow):
            raise UnusableRow(row.why)
        self.bad += 1
        if len(self._first) < SHOWN:
            self._first.append(row.why)

    def check(self, name: str, rows: int) -> None:
        """See that the bad ones are few.

        Args:
            name: of the data set.
            rows: read so far, those left out included.

        Raises:
            DataError: they are more than `max_bad_row_rate` allows, or any where bad rows are errors.
        """
        listed, limit = "\n  ".join(self._first), self._format.max_bad_row_rate
        if self._format.bad_rows == "raise" and self.bad:
            advice = '(bad_rows = "skip" would leave such rows out and count them.)'
            if self.bad > limit * rows:
                advice = "Mend them, or name another label_key, reward or file."
                if all(NO_ROOM in each for each in self._first):
                    advice = 'Shorten them, or set bad_rows = "skip" and max_bad_row_rate.'
            raise DataError(f"{name}: {self.bad} of {rows} rows cannot be used; the first:\n  {listed}\n{advice}")
        if self.bad > limit * rows:
            raise DataError(
                f"{name}: {self.bad} of {rows} rows are bad, more than max_bad_row_rate = {limit:g} allows; "
                f"the first:\n  {listed}"
            )

    def note(self, name: str) -> str:
        """What was left out, as a sentence; empty when nothing was."""
        parts = []
        if self.too_long:
            parts.append(f"{self.too_long} {self._kind} longer than {self._format.max_prompt_len} tokens")
        if self.bad:
            parts.append(f"{self.bad} bad row{'s' if self.bad > 1 else ''}, the first: {self._first[0]}")
        return f"{name}: left out {'; '.join(parts)}" if parts else ""

    def notes(self, name: str) -> list[str]:
        """A sentence for each kind of thing that was left out."""
        found = [note] if (note := self.note(name)) else []
        if count := self.without_reasoning:
            rows = f"{count} row{'s' if count > 1 else ''}"
            found.append(f"{name}: the chat template leaves the reasoning of earlier turns out of {rows}")
        return found

    def state_dict(self) -> dict[str, Json]:
        """The counts, for sources that meet rows as they go."""
        counts = {"bad": self.bad, "too_long": self.too_long, "without_reasoning": self.without_reasoning}
        return {**counts, "first": [*self._first]}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Go on counting from what `state_dict` gave."""
        counts = (int(str(state[key])) for key in ("bad", "too_long", "without_reasoning"))
        self.bad, self.too_long, self.without_reasoning = counts
        first = state["first"]
        assert isinstance(first, list)
        self._first = [str(each) for each in first]
