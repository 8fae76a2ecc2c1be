"""The contract of each role.

Example:

    CONTRACTS["reward"]                     # RewardContract
"""

from collections.abc import Mapping
from types import MappingProxyType

from slime_testing.batch_transform import BatchTransformContract
from slime_testing.buffer import BufferContract
from slime_testing.buffer_filter import BufferFilterContract
from slime_testing.contract import Contract
from slime_testing.data_source import DataSourceContract
from slime_testing.doctor_check import CheckContract
from slime_testing.engine_contract import EngineContract
from slime_testing.generator import GeneratorContract
from slime_testing.group_filter import GroupFilterContract
from slime_testing.group_reward import GroupRewardContract
from slime_testing.launcher import LauncherContract
from slime_testing.reward import RewardContract
from slime_testing.reward_shaper import RewardShaperContract
from slime_testing.sample_filter import SampleFilterContract
from slime_testing.tensors.advantage import AdvantageContract
from slime_testing.tensors.correction import CorrectionContract
from slime_testing.tensors.loss import LossContract
from slime_testing.tensors.trainer import TrainerContract
from slime_testing.tensors.transport import TransportContract
from slime_testing.tracker import TrackerContract

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
        "check": CheckContract,
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
"""The contract of each role that has one."""
