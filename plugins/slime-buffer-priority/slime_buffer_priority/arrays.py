"""The array types of this plugin: places are row numbers, numbers are float64.

Example:

    places: Ints = np.array([3, 0])
    masses: Floats = np.array([0.5, 2.0])
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
"""Places, codes, counts: [n]."""
Floats: TypeAlias = NDArray[np.float64]
"""Masses, keys, points, times: [n]."""
Bools: TypeAlias = NDArray[np.bool_]
"""Which of some: [n]."""
Groups: TypeAlias = NDArray[np.object_]
"""Groups by place, where there is one: [n]. Taking some of them is four times as fast as from a list."""


def grown(array: NDArray[np.generic], size: int) -> NDArray[np.generic]:
    """The array with zeros behind it, up to a size."""
    larger = np.zeros(size, array.dtype)
    larger[: len(array)] = array
    return larger
