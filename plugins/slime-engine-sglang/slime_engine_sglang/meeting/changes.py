"""Changes: which weights differ from the version before, found by a sum of each (XXH3, 128 bits).

Example:

    changes = Changes()
    for name, tensor in changes.among(weights, since=3):    # all of them: nothing was sent before
        ...
    changes.sent(4)                                         # `among(weights, since=4)` leaves out what is the same
"""

from collections.abc import Iterator

import torch
import xxhash


class Changes:
    """Remembers a sum of every weight that one rank has sent."""

    def __init__(self) -> None:
        """Nothing was sent yet."""
        self._sums: dict[str, bytes] = {}
        self._version: int | None = None
        self._fresh: dict[str, bytes] = {}

    def among(
        self, weights: Iterator[tuple[str, torch.Tensor]], since: int | None
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """The weights that changed since a version; all of them, unless that is the one that was sent last."""
        known = self._sums if since is not None and since == self._version else {}
        self._fresh = {}
        for name, tensor in weights:
            self._fresh[name] = digest = _sum_of(tensor)
            if known.get(name) != digest:
                yield name, tensor

    def sent(self, version: int) -> None:
        """What `among` has gone through is a version that was sent."""
        self._sums, self._version = self._fresh, version


def _sum_of(tensor: torch.Tensor) -> bytes:
    return xxhash.xxh3_128_digest(bytes_of(tensor))


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """A weight's bytes on the CPU: its own where it is there and in one piece."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return memoryview(flat.cpu().numpy())  # type: ignore[arg-type]  # an array is one since Python 3.12, for mypy
