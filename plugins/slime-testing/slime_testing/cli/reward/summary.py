"""Summary of a trial: how many rows were scored, how high, why not, and how long calls took.

Example:

    for line in summarize(answers, calls).lines(): print(line)
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from slime_core.sample import Json
from slime_core.score import NotApplicable, Score, Unscored
from slime_core.stats import CallStats, percentile
from slime_testing.cli.reward.trial import Answer

BINS = 10
"""Bars of the histogram, where there are more different scores than that."""
BAR = 40
"""Characters of the longest bar."""


@dataclass(frozen=True, slots=True)
class Bin:
    """One bar of the histogram: scores from `low` to `high`, the last bar's included."""

    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Summary:
    """All rows of a trial together."""

    rows: int
    """Rows read."""
    scored: int
    """Rows with a score."""
    unscored: Mapping[str, int]
    """Rows without, by reason."""
    not_applicable: int
    """Rows that the reward has no opinion on."""
    unfinished: int
    """Rows that a run would not score: aborted or failed samples."""
    mean: float | None
    """Mean score; None when there is none."""
    std: float | None
    """Standard deviation of the scores."""
    components: Mapping[str, float]
    """Mean of each component, over the rows that have it."""
    histogram: Sequence[Bin]
    """Scores."""
    p50_s: float | None
    """Seconds that half of the calls did not exceed."""
    p99_s: float | None
    """Seconds that 99 % of the calls did not exceed."""
    errors: int
    """Calls that raised or broke the contract, repeated ones included."""
    timeouts: int
    """Calls that were given up."""
    blocked_s: float
    """Seconds for which it kept the event loop from everything else, counted from a quarter of a second on."""

    def to_dict(self) -> dict[str, Json]:
        """Plain JSON."""
        histogram: list[Json] = [{"low": each.low, "high": each.high, "count": each.count} for each in self.histogram]
        return {
            "rows": self.rows,
            "scored": self.scored,
            "unscored": dict(self.unscored),
            "not_applicable": self.not_applicable,
            "unfinished": self.unfinished,
            "mean": self.mean,
            "std": self.std,
            "components": dict(self.components),
            "histogram": histogram,
            "p50_s": self.p50_s,
            "p99_s": self.p99_s,
            "errors": self.errors,
            "timeouts": self.timeouts,
            "blocked_s": self.blocked_s,
        }

    def lines(self) -> Iterator[str]:
        """Text for a terminal."""
        yield f"{self.scored} of {self.rows} rows scored"
        for reason, count in self.unscored.items():
            yield f"  unscored        {count}  {reason}"
        if self.not_applicable:
            yield f"  not applicable  {self.not_applicable}"
        if self.unfinished:
            yield f"  unfinished      {self.unfinished}  aborted or failed: a run does not score them"
        if self.mean is not None:
            yield f"mean {self.mean:.4f}, standard deviation {self.std:.4f}"
        for name, value in self.components.items():
            yield f"  {name} {value:.4f}"
        most = max((each.count for each in self.histogram), default=0)
        for each in self.histogram:
            label = f"{each.low:.3g}" if each.low == each.high else f"{each.low:.3g} to {each.high:.3g}"
            yield f"  {label:>18}  {'#' * round(BAR * each.count / most):{BAR}}  {each.count}".rstrip()
        if self.p50_s is not None and self.p99_s is not None:
            yield f"calls: p50 {1000 * self.p50_s:.3g} ms, p99 {1000 * self.p99_s:.3g} ms"
        if self.errors or self.timeouts:
            yield f"calls that failed: {self.errors} errors, {self.timeouts} timeouts"
        if self.blocked_s:
            yield f"it blocked the event loop for {self.blocked_s:.1f} s: use `await`, or write it as a plain `def`"


def summarize(answers: Sequence[Answer], calls: CallStats) -> Summary:
    """Sum a trial up."""
    verdicts = [each.verdict for each in answers]
    scores = [each for each in verdicts if isinstance(each, Score)]
    values = [each.value for each in scores]
    seconds = sorted(calls.seconds)
    parts: dict[str, list[float]] = {}
    for each in scores:
        for name, value in each.components.items():
            parts.setdefault(name, []).append(value)
    return Summary(
        rows=len(verdicts),
        scored=len(scores),
        unscored=dict(Counter(each.reason for each in verdicts if isinstance(each, Unscored)).most_common()),
        not_applicable=sum(isinstance(each, NotApplicable) for each in verdicts),
        unfinished=verdicts.count(None),
        mean=fmean(values) if values else None,
        std=pstdev(values) if values else None,
        components={name: fmean(those) for name, those in sorted(parts.items())},
        histogram=histogram(values),
        p50_s=percentile(seconds, 0.50) if seconds else None,
        p99_s=percentile(seconds, 0.99) if seconds else None,
        errors=calls.errors,
        timeouts=calls.timeouts,
        blocked_s=calls.blocked,
    )


def histogram(values: Sequence[float]) -> list[Bin]:
    """A bar for each value where there are few, else bars of equal width."""
    counts = Counter(values)
    if len(counts) <= BINS:
        return [Bin(value, value, counts[value]) for value in sorted(counts)]
    low, high = min(values), max(values)
    width = (high - low) / BINS
    places = Counter(min(BINS - 1, int((value - low) / width)) for value in values)
    return [Bin(low + place * width, low + (place + 1) * width, places[place]) for place in range(BINS)]
