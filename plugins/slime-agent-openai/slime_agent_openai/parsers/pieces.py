"""Pieces: splits an answer's tokens into text and markers as they arrive.

If the tokenizer has a token for a marker, only that token counts: the same characters from other tokens are text. Other
markers are matched by their characters. Output is never withdrawn: half a character, or text that may begin a marker,
waits for more tokens.

Example:

    pieces = Pieces(tokenizer, {"<tool_call>", "</tool_call>"})
    for piece in pieces.feed(chunk.tokens):
        piece.marker, piece.text
    pieces.end()                         # the text held back so far, without tokens that end answers
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache

from slime_core.roles import Tokenizer

REPLACEMENT = "\ufffd"  # What tokenizers make of bytes that are not (yet) a character
WINDOW = 24  # Number of tokens above which the first ones are no longer decoded again
CONTEXT = 8  # Tokens that stay at least: more than the bytes of a character
MAX_WINDOW = 96
"""Number of tokens above which the first ones are always dropped, even if the remaining text no longer matches."""
MAX_RUN = 48  # Most tokens decoded at once where an answer arrives whole; each call costs 4 µs
HALF = 3  # Bytes of a character that may lack its last byte


@dataclass(frozen=True, slots=True)
class Piece:
    """A marker, or text between markers."""

    text: str  # Never empty
    marker: bool = False  # Whether it is one of the given markers


@dataclass(frozen=True, slots=True)
class _MarkerForms:
    """How a tokenizer writes the markers of a family."""

    by_id: Mapping[int, str]  # Markers with their own token
    spelled: re.Pattern[str] | None  # Matches the other markers, if any
    prefixes: Set[str]  # Beginnings of those markers
    longest: int  # Most characters of a beginning
    ends: Set[int]  # Tokens that end answers and are not markers
    alone: Set[int]  # Tokens that are decoded alone


@lru_cache(maxsize=8)  # a run has one or two; otherwise each answer would tokenize every marker
def _forms_of(tokenizer: Tokenizer, markers: frozenset[str]) -> _MarkerForms:
    encoded = {marker: tokenizer.encode(marker) for marker in markers}
    by_id = {ids[0]: marker for marker, ids in encoded.items() if len(ids) == 1}
    spelled = sorted((marker for marker, ids in encoded.items() if len(ids) != 1), key=len, reverse=True)
    prefixes = {marker[:size] for marker in spelled for size in range(1, len(marker))}
    ends = tokenizer.eos_token_ids - by_id.keys()
    pattern = re.compile("|".join(map(re.escape, spelled))) if spelled else None
    return _MarkerForms(by_id, pattern, prefixes, max(map(len, prefixes), default=0), ends, ends | by_id.keys())


class Pieces:
    """The pieces of one answer; together they are its text."""

    def __init__(self, tokenizer: Tokenizer, markers: Iterable[str]) -> None:
        self._forms = forms = _forms_of(tokenizer, frozenset(markers))  # type: ignore[arg-type]  # hashed by identity
        self._by_id, self._spelled, self._ends = forms.by_id, forms.spelled, forms.ends
        self._held_ends: list[int] = []
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._emitted = self._held = ""

    def feed(self, tokens: Iterable[int]) -> Iterator[Piece]:
        for run in self.runs(tokens):
            yield from self.feed_run(run)

    def feed_run(self, run: Sequence[int]) -> Iterator[Piece]:
        if run[0] in self._ends:
            self._held_ends += run
            return
        ends, self._held_ends = self._held_ends, []
        for end in ends:
            yield from self._add((end,))
        yield from self._add(run)

    def runs(self, tokens: Iterable[int]) -> Iterator[Sequence[int]]:
        """Tokens that are decoded together, split at markers and at tokens that end answers."""
        ids, alone = list(tokens), self._forms.alone
        if self._spelled is not None:
            yield from ([token] for token in ids)
            return
        begin = 0
        for place in [*(place for place, token in enumerate(ids) if token in alone), len(ids)]:
            yield from (ids[at : min(at + MAX_RUN, place)] for at in range(begin, place, MAX_RUN))
            if place < len(ids):
                yield [ids[place]]
            begin = place + 1

    def end(self) -> Iterator[Piece]:
        text = self._decode()[len(self._emitted) :] if self._window else ""
        self._window, self._emitted = [], ""
        yield from self._search(text)
        if self._held:
            yield Piece(self._held)
            self._held = ""

    def _add(self, run: Sequence[int]) -> Iterator[Piece]:
        self._window += run
        text = self._decode()
        marker = self._by_id.get(run[0])
        if marker is not None:
            before = text[len(self._emitted) :].removesuffix(marker)
            self._settle(text, len(text))
            yield from self._search(before)
            if self._held:
                yield Piece(self._held)
                self._held = ""
            yield Piece(marker, marker=True)
            return
        known = self._decided(text)
        fresh = text[len(self._emitted) : known]
        if fresh:
            self._settle(text, known)
            yield from self._search(fresh)

    def _decided(self, text: str) -> int:
        """Number of characters that more tokens cannot change."""
        if not text.endswith(REPLACEMENT):
            return len(text)
        if not text.startswith(self._emitted) and len(self._window) <= MAX_WINDOW:
            return 0  # tokens of single bytes: an incomplete last character leaves the whole run undecided
        return max(len(text.rstrip(REPLACEMENT)), len(text) - HALF)

    def _settle(self, text: str, known: int) -> None:
        """Mark the text as put out up to `known`, and drop the first tokens when there are many."""
        self._emitted = text[:known]
        if len(self._window) < WINDOW:
            return
        for size in range(CONTEXT, CONTEXT + HALF + 1):  # one of these begins with a whole character
            rest = self._tokenizer.decode(self._window[-size:], skip_special_tokens=False)
            if text.endswith(rest) or (len(self._window) > MAX_WINDOW and size > CONTEXT + HALF - 1):
                self._window = self._window[-size:]
                self._emitted = rest[: max(len(rest) - (len(text) - known), 0)]
                return

    def _decode(self) -> str:
        return self._tokenizer.decode(self._window, skip_special_tokens=False)

    def _search(self, text: str) -> Iterator[Piece]:
        if self._spelled is None:
            if text:
                yield Piece(text)
            return
        text = self._held + text
        at = 0
        for found in self._spelled.finditer(text):
            if found.start() > at:
                yield Piece(text[at : found.start()])
            yield Piece(found[0], marker=True)
            at = found.end()
        rest = text[at:]
        forms = self._forms
        size = next((n for n in range(min(forms.longest, len(rest)), 0, -1) if rest[-n:] in forms.prefixes), 0)
        self._held = rest[len(rest) - size :]
        if len(rest) > size:
            yield Piece(rest[: len(rest) - size])
