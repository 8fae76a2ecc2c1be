"""Allowance: how many samples of a wave may fail; one more, and there is no need to wait for the rest.

A reward that hangs costs a time limit a sample: sixteen of them were eight minutes before the run stopped.

Example:

    allowance = Allowance("rollout 3", drawn=64, limit=0.05)
    allowance.ended([failure])          # three may; the fourth raises
"""

from collections import Counter

from slime_core.errors import RolloutError
from slime_core.rollout.hearing import Failure

MOST_REASONS = 3
"""Reasons that an error text gives, the commonest first."""


class Failures:
    """Samples that failed, by reason, with the first of each."""

    def __init__(self) -> None:
        """No sample has failed yet."""
        self.counts: Counter[str] = Counter()
        """By reason."""
        self._first: dict[str, Failure] = {}

    def add(self, failure: Failure) -> None:
        """Count one more failed sample."""
        self.counts[failure.reason] += 1
        self._first.setdefault(failure.reason, failure)

    @property
    def total(self) -> int:
        """How many samples failed."""
        return self.counts.total()

    def copy(self) -> "Failures":
        """The same counts, which can be added to without changing these."""
        made = Failures()
        made.counts, made._first = self.counts.copy(), dict(self._first)
        return made

    def too_many(self, what: str, samples: int, limit: float, running: int = 0) -> RolloutError:
        """The error of `what`, in which more than `limit` of its samples failed, with the commonest reasons."""
        still = f" whatever becomes of the {running} that have not ended" if running else ""
        common = self.counts.most_common(MOST_REASONS)
        told = (f"{count} x {reason}: {self._first[reason].detail}" for reason, count in common)
        top = "".join("\n  " + each.replace("\n", "\n    ") for each in told)
        return RolloutError(
            f"{what}: {self.total} of {samples} samples failed, which is over --max-error-rate {limit:g}{still}:{top}"
        )


class Allowance:
    """Counts one wave's failures while it runs."""

    def __init__(self, what: str, drawn: int, limit: float, before: Failures | None = None, made: int = 0) -> None:
        """Begin a wave.

        Args:
            what: of what, such as "rollout 3".
            drawn: samples of this wave.
            limit: share of all samples that may fail.
            before: what failed in earlier waves; it is added to.
            made: samples of earlier waves.
        """
        self._what, self._drawn, self._limit = what, drawn, limit
        self._failures = Failures() if before is None else before
        self._made, self._ended = made, 0

    def ended(self, failure: Failure | None) -> None:
        """Count what one drawn sample became, into whatever number it fanned out.

        Raises:
            RolloutError: so many failed that the rollout cannot stay within its limit.
        """
        self._ended += 1
        if failure is not None:
            self._failures.add(failure)
        running, expected = self._drawn - self._ended, self._made + self._drawn
        if running and self._failures.total > self._limit * expected:
            raise self._failures.too_many(self._what, expected, self._limit, running)
