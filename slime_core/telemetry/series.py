"""Series: a curve of any length in a fixed number of points, for a sparkline of the whole run.

series = Series(points=48)
series.add(0.12)
series.sparkline()          # "▁▂▃▅▆▇█"
"""

BLOCKS = "▁▂▃▄▅▆▇█"


class Series:
    """When the points are full, neighbours are averaged two by two and each point stands for twice as many values."""

    def __init__(self, points: int = 48) -> None:
        if points < 2 or points % 2:
            raise ValueError(f"points must be an even number from 2 on, got {points}")
        self.points = points
        self.count = 0
        self.last = 0.0
        self.best = float("-inf")
        self._stride = 1
        self._means: list[float] = []
        self._pending: list[float] = []

    def add(self, value: float) -> None:
        """Append a value."""
        self.count += 1
        self.last = value
        self.best = max(self.best, value)
        self._pending.append(value)
        if len(self._pending) < self._stride:
            return
        self._means.append(sum(self._pending) / self._stride)
        self._pending.clear()
        if len(self._means) == self.points:
            pairs = zip(self._means[::2], self._means[1::2], strict=True)
            self._means = [(left + right) / 2 for left, right in pairs]
            self._stride *= 2

    def means(self) -> list[float]:
        """The points, oldest first; the last one may stand for fewer values than the others."""
        if not self._pending:
            return list(self._means)
        return [*self._means, sum(self._pending) / len(self._pending)]

    def sparkline(self) -> str:
        """One character a point, scaled from the smallest to the greatest; a constant curve lies in the middle."""
        means = self.means()
        if not means:
            return ""
        low, high = min(means), max(means)
        if high == low:
            return BLOCKS[3] * len(means)
        return "".join(BLOCKS[round((mean - low) / (high - low) * (len(BLOCKS) - 1))] for mean in means)
