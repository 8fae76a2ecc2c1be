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
    from slime_core.testing.buffer import BufferContract
    from slime_core.testing.buffer_filter import BufferFilterContract
    from slime_core.testing.contract import CheckResult, Contract, ContractViolation
    from slime_core.testing.data_source import DataSourceContract
    from slime_core.testing.distribution import write_distribution
    from slime_core.testing.engine import CharTokenizer, ScriptedEngine
    from slime_core.testing.generator import GeneratorContract
    from slime_core.testing.package import PluginPackageContract
    from slime_core.testing.reward import RewardContract
    from slime_core.testing.samples import make_group, make_pending, make_sample

_HOMES = {
    "BufferContract": "buffer",
    "BufferFilterContract": "buffer_filter",
    "CharTokenizer": "engine",
    "CheckResult": "contract",
    "Contract": "contract",
    "ContractViolation": "contract",
    "DataSourceContract": "data_source",
    "GeneratorContract": "generator",
    "PluginPackageContract": "package",
    "RewardContract": "reward",
    "ScriptedEngine": "engine",
    "make_group": "samples",
    "make_pending": "samples",
    "make_sample": "samples",
    "write_distribution": "distribution",
}

__all__ = [
    "BufferContract",
    "BufferFilterContract",
    "CharTokenizer",
    "CheckResult",
    "Contract",
    "ContractViolation",
    "DataSourceContract",
    "GeneratorContract",
    "PluginPackageContract",
    "RewardContract",
    "ScriptedEngine",
    "make_group",
    "make_pending",
    "make_sample",
    "write_distribution",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
