"""Shelf: the groups of one source by place, and the law by which some of them are drawn.

A key is the logarithm (base 2) of a priority; a weight is n of the draw, divided by all held and by the chance of the
group to be in the draw: with it, the mean over the draw estimates the mean over all that are held without bias.

Example:

    shelf.put(places, keys)
    places, weights = shelf.draw(256, random)
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.random import Generator

from slime_buffer_priority.arrays import Floats, Ints
from slime_buffer_priority.race import Drawn
from slime_core.sample import Json


class Shelf(Protocol):
    """Places that are held, each with its key."""

    def put(self, places: Ints, keys: Floats) -> None:
        """Take places in: [n] each, no place twice."""
        ...

    def change(self, places: Ints, keys: Floats) -> None:
        """Give places that are held new keys: [n] each, no place twice."""
        ...

    def remove(self, places: Ints) -> None:
        """Forget places: [n]."""
        ...

    def draw(self, want: int, random: Generator) -> tuple[Ints, Floats]:
        """At most `want` distinct places and their weights: [n] each."""
        ...

    def state(self) -> dict[str, Json]:
        """What `load` cannot tell from the keys."""
        ...

    def load(self, state: Mapping[str, Json], places: Ints, keys: Floats) -> None:
        """Continue, with these places: [n] each, in the order of places."""
        ...

    def __len__(self) -> int:
        """Places held."""
        ...


def weights_of(drawn: Drawn, held: int) -> Floats:
    """Weight of each drawn place before beta: [n]."""
    return (len(drawn.places) / held) / np.maximum(drawn.chances, np.finfo(np.float64).tiny)
