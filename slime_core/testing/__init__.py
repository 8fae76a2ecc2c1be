r"""The contract kit: tests that a plugin inherits, for each role it fills.

    class TestMath(RewardContract):
        choice = "slime-reward-math/math"
        good = make_sample(response=r"\boxed{4}", label="4")
        bad = make_sample(response=r"\boxed{5}", label="4")

Names are imported when they are asked for: pytest loads this package in every session.
"""

from typing import TYPE_CHECKING

from slime_core._lazy import exports

if TYPE_CHECKING:
    from slime_core.testing.batch_transform import BatchTransformContract
    from slime_core.testing.buffer import BufferContract
    from slime_core.testing.buffer_filter import BufferFilterContract
    from slime_core.testing.by_role import CONTRACTS
    from slime_core.testing.contract import CheckInfo, CheckResult, CheckStatus, Contract, ContractViolation
    from slime_core.testing.data_source import DataSourceContract
    from slime_core.testing.distribution import write_distribution
    from slime_core.testing.doctor_check import CheckContract
    from slime_core.testing.engine import CharTokenizer, ScriptedEngine
    from slime_core.testing.engine_contract import EngineContract
    from slime_core.testing.fake_engine import FakeEngine
    from slime_core.testing.generator import GeneratorContract
    from slime_core.testing.group_filter import GroupFilterContract
    from slime_core.testing.group_reward import GroupRewardContract
    from slime_core.testing.launcher import LauncherContract
    from slime_core.testing.manager import PluginManager
    from slime_core.testing.package import PluginPackageContract
    from slime_core.testing.registry import ALL_CHECKS
    from slime_core.testing.report import PluginReport, SubjectReport, check_plugin
    from slime_core.testing.reward import RewardContract
    from slime_core.testing.reward_shaper import RewardShaperContract
    from slime_core.testing.role import RoleContract
    from slime_core.testing.run_hooks import RunHooksContract
    from slime_core.testing.sample_filter import SampleFilterContract
    from slime_core.testing.samples import make_group, make_pending, make_sample
    from slime_core.testing.serving import make_launcher, publish_model
    from slime_core.testing.tensors.advantage import AdvantageContract
    from slime_core.testing.tensors.correction import CorrectionContract
    from slime_core.testing.tensors.loss import LossContract
    from slime_core.testing.tensors.trainer import TrainerContract
    from slime_core.testing.tensors.transport import TransportContract
    from slime_core.testing.tiny_model import write_tiny_model
    from slime_core.testing.tracker import TrackerContract

_HOMES = {
    "slime_core.testing.batch_transform": "BatchTransformContract",
    "slime_core.testing.buffer": "BufferContract",
    "slime_core.testing.buffer_filter": "BufferFilterContract",
    "slime_core.testing.by_role": "CONTRACTS",
    "slime_core.testing.contract": "CheckInfo CheckResult CheckStatus Contract ContractViolation",
    "slime_core.testing.data_source": "DataSourceContract",
    "slime_core.testing.distribution": "write_distribution",
    "slime_core.testing.doctor_check": "CheckContract",
    "slime_core.testing.engine": "CharTokenizer ScriptedEngine",
    "slime_core.testing.engine_contract": "EngineContract",
    "slime_core.testing.fake_engine": "FakeEngine",
    "slime_core.testing.generator": "GeneratorContract",
    "slime_core.testing.group_filter": "GroupFilterContract",
    "slime_core.testing.group_reward": "GroupRewardContract",
    "slime_core.testing.launcher": "LauncherContract",
    "slime_core.testing.manager": "PluginManager",
    "slime_core.testing.package": "PluginPackageContract",
    "slime_core.testing.registry": "ALL_CHECKS",
    "slime_core.testing.report": "PluginReport SubjectReport check_plugin",
    "slime_core.testing.reward": "RewardContract",
    "slime_core.testing.reward_shaper": "RewardShaperContract",
    "slime_core.testing.role": "RoleContract",
    "slime_core.testing.run_hooks": "RunHooksContract",
    "slime_core.testing.sample_filter": "SampleFilterContract",
    "slime_core.testing.samples": "make_group make_pending make_sample",
    "slime_core.testing.serving": "make_launcher publish_model",
    "slime_core.testing.tensors.advantage": "AdvantageContract",
    "slime_core.testing.tensors.correction": "CorrectionContract",
    "slime_core.testing.tensors.loss": "LossContract",
    "slime_core.testing.tensors.trainer": "TrainerContract",
    "slime_core.testing.tensors.transport": "TransportContract",
    "slime_core.testing.tiny_model": "write_tiny_model",
    "slime_core.testing.tracker": "TrackerContract",
}

__getattr__ = exports(__name__, _HOMES)

__all__ = [
    "ALL_CHECKS",
    "CONTRACTS",
    "AdvantageContract",
    "BatchTransformContract",
    "BufferContract",
    "BufferFilterContract",
    "CharTokenizer",
    "CheckContract",
    "CheckInfo",
    "CheckResult",
    "CheckStatus",
    "Contract",
    "ContractViolation",
    "CorrectionContract",
    "DataSourceContract",
    "EngineContract",
    "FakeEngine",
    "GeneratorContract",
    "GroupFilterContract",
    "GroupRewardContract",
    "LauncherContract",
    "LossContract",
    "PluginManager",
    "PluginPackageContract",
    "PluginReport",
    "RewardContract",
    "RewardShaperContract",
    "RoleContract",
    "RunHooksContract",
    "SampleFilterContract",
    "ScriptedEngine",
    "SubjectReport",
    "TrackerContract",
    "TrainerContract",
    "TransportContract",
    "check_plugin",
    "make_group",
    "make_launcher",
    "make_pending",
    "make_sample",
    "publish_model",
    "write_distribution",
    "write_tiny_model",
]
