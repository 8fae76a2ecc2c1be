r"""The contract kit: tests that a plugin inherits, for each role it fills.

    class TestMath(RewardContract):
        choice = "slime-reward-math/math"
        good = make_sample(response=r"\boxed{4}", label="4")
        bad = make_sample(response=r"\boxed{5}", label="4")

Names are imported when they are asked for: pytest loads this package in every session.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slime_core.testing.samples import make_group, make_sample

_HOMES = {"make_group": "samples", "make_sample": "samples"}

__all__ = ["make_group", "make_sample"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
