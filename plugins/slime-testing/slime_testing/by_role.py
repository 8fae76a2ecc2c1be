"""The contract of each role, and the contracts that plugins offer for their choices.

Example:

    CONTRACTS["reward"]                     # RewardContract
    [project.entry-points."slime.contracts"]
    "engine.mine" = "slime_engine_mine.contract:MineContract"       # a subclass of EngineContract, for the engine mine

An offered contract sets what its checks need: settings, a model or samples. `slime plugins check` uses it instead of
the role's contract.
"""

import importlib.metadata
from collections.abc import Mapping
from types import MappingProxyType

from slime_core.errors import PluginError
from slime_testing.contract import Contract
from slime_testing.data import BufferContract, DataSourceContract
from slime_testing.decisions import (
    BatchTransformContract,
    BufferFilterContract,
    GroupFilterContract,
    RewardShaperContract,
    SampleFilterContract,
)
from slime_testing.engine_contract import EngineContract
from slime_testing.generator import GeneratorContract
from slime_testing.launcher import LauncherContract
from slime_testing.observers import TrackerContract
from slime_testing.reward import GroupRewardContract, RewardContract
from slime_testing.tensors.algorithm import AdvantageContract, CorrectionContract, LossContract
from slime_testing.tensors.trainer import TrainerContract
from slime_testing.tensors.transport import TransportContract

CONTRACTS: Mapping[str, type[Contract]] = MappingProxyType(
    {
        "data_source": DataSourceContract,
        "generator": GeneratorContract,
        "reward": RewardContract,
        "group_reward": GroupRewardContract,
        "group_filter": GroupFilterContract,
        "sample_filter": SampleFilterContract,
        "reward_shaper": RewardShaperContract,
        "batch_transform": BatchTransformContract,
        "launcher": LauncherContract,
        "tracker": TrackerContract,
        "buffer": BufferContract,
        "buffer_filter": BufferFilterContract,
        "advantage": AdvantageContract,
        "loss": LossContract,
        "correction": CorrectionContract,
        "engine": EngineContract,
        "trainer": TrainerContract,
        "transport": TransportContract,
    }
)
"""Contract by role."""


GROUP = "slime.contracts"
"""The entry-point group; entries are named ROLE.NAME."""


def offered_contracts(dist: str) -> dict[str, importlib.metadata.EntryPoint]:
    """Entry points of a distribution's contracts, by name; imports nothing."""
    entries = importlib.metadata.distribution(dist).entry_points
    return {each.name: each for each in entries if each.group == GROUP}


def load_contract(entry: importlib.metadata.EntryPoint, base: type[Contract]) -> type[Contract]:
    """The contract that an entry point names.

    Raises:
        PluginError: it cannot be imported, or is not a subclass of `base`.
    """
    where = f"entry point {entry.name} = {entry.value} of group {GROUP}"
    try:
        loaded: object = entry.load()
    except Exception as error:
        raise PluginError(f"{where} cannot be imported: {error}") from error
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise PluginError(f"{where} is {loaded!r:.80}; expected a subclass of {base.__name__}")
    return loaded
