"""A coverage-guided fuzzer for the grader: inputs that reach new lines are kept and changed further.

python benchmarks/grading/fuzz.py --seconds 60

Prints every answer that makes a fault or takes longer than a tenth of a second, and exits 1 if there was one.
"""

import argparse
import random
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING

from slime_reward_math.cases import hostile, pairs
from slime_reward_math.grader import FAULT, compare, forget

if TYPE_CHECKING:
    from _typeshed import TraceFunction

SLOW_S = 0.1
"""Under tracing, which makes everything some ten times slower, this is a slow answer times ten."""
PACKAGE = "slime_reward_math"
MAX_LENGTH = 600
"""Characters of a changed answer."""


class Coverage:
    """The lines of the package that were ever run."""

    def __init__(self) -> None:
        self.lines: set[tuple[str, int]] = set()
        self._package: dict[str, bool] = {}

    def trace(self, frame: FrameType, event: str, argument: object) -> "TraceFunction | None":
        """Called by the interpreter for each line."""
        name = frame.f_code.co_filename
        if self._package.setdefault(name, PACKAGE in name):
            self.lines.add((name, frame.f_lineno))
            return self.trace
        return None

    def grows(self, gold: str, answer: str) -> tuple[bool, str, float]:
        """Grade a pair; whether new lines were run, the verdict's reason, and the seconds it took."""
        before, start = len(self.lines), time.perf_counter()
        sys.settrace(self.trace)
        try:
            reason = compare(gold, answer).reason
        finally:
            sys.settrace(None)
        return len(self.lines) > before, reason, time.perf_counter() - start


def main() -> int:
    """Fuzz for as long as was asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    draw, coverage = random.Random(asked.seed), Coverage()
    corpus = [text[:MAX_LENGTH] for pair in pairs() for text in pair[:2]]
    corpus += [case.response[:MAX_LENGTH] for case in hostile()]
    found, tried, end = 0, 0, time.monotonic() + asked.seconds
    while time.monotonic() < end:
        gold, answer = draw.choice(corpus), changed(draw.choice(corpus), corpus, draw)
        grew, reason, seconds = coverage.grows(gold, answer)
        tried += 1
        if grew:
            corpus.append(answer)
        if reason.startswith(FAULT) or seconds > 10 * SLOW_S:
            found += 1
            print(f"{reason} in {seconds:.2f} s: gold {gold!r}, answer {answer!r}")
        if tried % 500 == 0:
            forget()
    print(f"{tried} pairs, {len(coverage.lines)} lines reached, {len(corpus)} texts kept, {found} findings")
    return 1 if found else 0


def changed(text: str, corpus: list[str], draw: random.Random) -> str:
    """A text with a few pieces cut, doubled, replaced, or taken from another."""
    for _ in range(draw.randint(1, 4)):
        start = draw.randrange(len(text) + 1)
        stop = min(len(text), start + draw.randint(0, 8))
        other = draw.choice(corpus)
        place = draw.randrange(len(other) + 1)
        piece = draw.choice(
            ["", text[start:stop] * 2, other[place : place + draw.randint(1, 12)], chr(draw.randrange(1, 256))]
        )
        text = (text[:start] + piece + text[stop:])[:MAX_LENGTH]
    return text


if __name__ == "__main__":
    sys.exit(main())
