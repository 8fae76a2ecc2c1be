"""Speed: what one engine answered lately, and what that says of how fast it can be at most and must be at least.

Requests under way count with what they may have made so far: nothing at worst, their whole budget at best. So an engine
is called slow only if it is however lucky it has been, beside peers that are fast however unlucky.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

WINDOW = 64
"""Answers after which older ones weigh half."""
ENOUGH = 8
"""Observations that say something."""
NOTICEABLE_S = 2.0
"""Mean seconds a request below which an engine is called slow by nobody: so long may any process be held up."""
TIMES = 20.0
"""So many times slower than the median of its peers is slow."""


@dataclass(slots=True)
class Speed:
    """Tokens and seconds of requests, a request's own token counted as one more."""

    answers: float = 0.0
    """Requests answered, older ones discounted."""
    tokens: float = 0.0
    """Of the answers."""
    seconds: float = 0.0
    """Of the answers, from request to answer."""
    running: int = 0
    """Requests under way."""
    budget: float = 0.0
    """Tokens that these may make."""
    began: float = 0.0
    """Sum of the moments when these began."""

    def begin(self, budget: int, now: float) -> None:
        """Count a request that begins at `now` and may make `budget` tokens."""
        self.running += 1
        self.budget += budget
        self.began += now

    def drop(self, budget: int, began: float) -> None:
        """A request ended without an answer."""
        self.running -= 1
        if not self.running:
            self.budget = self.began = 0.0  # nothing of what rounding left
            return
        self.budget -= budget
        self.began -= began

    def answer(self, tokens: int, seconds: float) -> None:
        """A request was answered."""
        self.answers += 1.0
        self.tokens += tokens + 1
        self.seconds += seconds
        if self.answers >= WINDOW:
            self.answers, self.tokens, self.seconds = self.answers / 2, self.tokens / 2, self.seconds / 2

    def at_least(self, now: float) -> float:
        """Tokens a second and request, if what runs has made nothing."""
        return self.tokens / max(1e-9, self._seconds(now))

    def at_most(self, now: float) -> float:
        """Tokens a second and request, if what runs is all but done."""
        return (self.tokens + self.budget + self.running) / max(1e-9, self._seconds(now))

    def is_telling(self, now: float) -> bool:
        """Whether there is enough to call it slow by."""
        seen = self.answers + self.running
        return seen >= ENOUGH and self._seconds(now) >= NOTICEABLE_S * seen

    def _seconds(self, now: float) -> float:
        return self.seconds + self.running * now - self.began


def slow_ones(speeds: Sequence[Speed], now: float) -> dict[int, str]:
    """Positions of those that are slow beside the others, and how slow."""
    telling = [position for position, speed in enumerate(speeds) if speed.is_telling(now)]
    if not telling or len(speeds) < 2:
        return {}
    rates = [speed.at_least(now) if speed.answers >= ENOUGH else None for speed in speeds]
    found = {}
    for position in telling:
        peers = [rate for each, rate in enumerate(rates) if rate is not None and each != position]
        mine = speeds[position].at_most(now)
        if peers and mine * TIMES < (usual := median(peers)):
            found[position] = f"it makes at most {mine:.2g} tokens a second for a request, its peers {usual:.2g}"
    return found
