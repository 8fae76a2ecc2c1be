"""What pytest gets from slime-core: fixtures for tests of plugins. Loaded in every session, so it imports late."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from slime_core.sample import Group, Sample


@pytest.fixture
def make_sample() -> "Callable[..., Sample]":
    """`slime_core.testing.make_sample`: a finished sample."""
    from slime_core.testing.samples import make_sample

    return make_sample


@pytest.fixture
def make_group() -> "Callable[..., Group]":
    """`slime_core.testing.make_group`: a finished, frozen group."""
    from slime_core.testing.samples import make_group

    return make_group
