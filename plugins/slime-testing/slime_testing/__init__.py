r"""The contract kit: for each role, a class of checks that a plugin's tests inherit.

    class TestMath(RewardContract):
        choice = "slime-reward-math/math"
        good = make_sample(response=r"\boxed{4}", label="4")
        bad = make_sample(response=r"\boxed{5}", label="4")

Names are imported on first use, since pytest loads this package in every session.
"""

from typing import TYPE_CHECKING

from slime_core.lazy import exports

if TYPE_CHECKING:
    from slime_testing.by_role import CONTRACTS as CONTRACTS
    from slime_testing.contract import CheckInfo as CheckInfo
    from slime_testing.contract import CheckResult as CheckResult
    from slime_testing.contract import CheckStatus as CheckStatus
    from slime_testing.contract import Contract as Contract
    from slime_testing.contract import ContractViolation as ContractViolation
    from slime_testing.data import BufferContract as BufferContract
    from slime_testing.data import DataSourceContract as DataSourceContract
    from slime_testing.decisions import BatchTransformContract as BatchTransformContract
    from slime_testing.decisions import BufferFilterContract as BufferFilterContract
    from slime_testing.decisions import GroupFilterContract as GroupFilterContract
    from slime_testing.decisions import RewardShaperContract as RewardShaperContract
    from slime_testing.decisions import SampleFilterContract as SampleFilterContract
    from slime_testing.distribution import PluginManager as PluginManager
    from slime_testing.distribution import write_distribution as write_distribution
    from slime_testing.engine import CharTokenizer as CharTokenizer
    from slime_testing.engine import ScriptedEngine as ScriptedEngine
    from slime_testing.engine_contract import EngineContract as EngineContract
    from slime_testing.fake_engine import FakeEngine as FakeEngine
    from slime_testing.generator import GeneratorContract as GeneratorContract
    from slime_testing.launcher import LauncherContract as LauncherContract
    from slime_testing.observers import RunHooksContract as RunHooksContract
    from slime_testing.observers import TrackerContract as TrackerContract
    from slime_testing.package import PluginPackageContract as PluginPackageContract
    from slime_testing.report import ALL_CHECKS as ALL_CHECKS
    from slime_testing.report import PluginReport as PluginReport
    from slime_testing.report import SubjectReport as SubjectReport
    from slime_testing.report import check_plugin as check_plugin
    from slime_testing.reward import GroupRewardContract as GroupRewardContract
    from slime_testing.reward import RewardContract as RewardContract
    from slime_testing.role import RoleContract as RoleContract
    from slime_testing.samples import make_group as make_group
    from slime_testing.samples import make_pending as make_pending
    from slime_testing.samples import make_sample as make_sample
    from slime_testing.serving import make_launcher as make_launcher
    from slime_testing.serving import publish_model as publish_model
    from slime_testing.serving import write_tiny_model as write_tiny_model
    from slime_testing.tensors.algorithm import AdvantageContract as AdvantageContract
    from slime_testing.tensors.algorithm import CorrectionContract as CorrectionContract
    from slime_testing.tensors.algorithm import LossContract as LossContract
    from slime_testing.tensors.trainer import TrainerContract as TrainerContract
    from slime_testing.tensors.transport import TransportContract as TransportContract
else:
    __getattr__, __all__ = exports(__name__)
