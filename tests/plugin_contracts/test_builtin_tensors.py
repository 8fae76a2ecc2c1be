"""The core's own tensor roles against the contract kit: `python test_builtin_tensors.py`."""

import subprocess
import sys
from collections.abc import Mapping
from typing import ClassVar

from slime_core.testing import AdvantageContract, CorrectionContract, LossContract

NUM_GPUS = 0


class TestGrpo(AdvantageContract):
    choice = "slime-core/grpo"


class TestGrpoWhitened(AdvantageContract):
    choice = "slime-core/grpo"
    settings: ClassVar[Mapping[str, object]] = {"normalize_advantages": True}
    independent_groups = False


class TestGrpoScaledByTheBatch(AdvantageContract):
    choice = "slime-core/grpo"
    settings: ClassVar[Mapping[str, object]] = {"scale_rewards": "batch"}
    independent_groups = False


class TestGdpo(AdvantageContract):
    choice = "slime-core/gdpo"
    settings: ClassVar[Mapping[str, object]] = {"reward_weights": {"right": 1.0, "short": 0.5}}
    independent_groups = False


class TestRloo(AdvantageContract):
    choice = "slime-core/rloo"


class TestMaxRl(AdvantageContract):
    choice = "slime-core/max_rl"


class TestGpg(AdvantageContract):
    choice = "slime-core/gpg"
    independent_groups = False


class TestReinforcePlusPlus(AdvantageContract):
    choice = "slime-core/reinforce_plus_plus"
    independent_groups = False


class TestReinforcePlusPlusBaseline(AdvantageContract):
    choice = "slime-core/reinforce_plus_plus_baseline"
    independent_groups = False


class TestPpo(AdvantageContract):
    choice = "slime-core/ppo"
    independent_groups = False


class TestPpoAsItIs(AdvantageContract):
    choice = "slime-core/ppo"
    settings: ClassVar[Mapping[str, object]] = {"normalize_advantages": False, "gamma": 0.9, "lambd": 0.8}


class TestPolicyLoss(LossContract):
    choice = "slime-core/policy_loss"


class TestPolicyLossWithEverything(LossContract):
    choice = "slime-core/policy_loss"
    settings: ClassVar[Mapping[str, object]] = {"entropy_coef": 0.01, "use_opsm": True, "eps_clip_c": 3.0}


class TestGspo(LossContract):
    choice = "slime-core/gspo"


class TestCispo(LossContract):
    choice = "slime-core/cispo"


class TestSftLoss(LossContract):
    choice = "slime-core/sft_loss"
    policy_gradient = False


class TestTis(CorrectionContract):
    choice = "slime-core/tis"


class TestIcepop(CorrectionContract):
    choice = "slime-core/icepop"


class TestMis(CorrectionContract):
    choice = "slime-core/mis"


class TestMisOfSequences(CorrectionContract):
    choice = "slime-core/mis"
    settings: ClassVar[Mapping[str, object]] = {
        "mis_level": "sequence",
        "mis_mode": "mask",
        "mis_veto_threshold": 1e-4,
    }


class TestMisOfGeometricMeans(CorrectionContract):
    choice = "slime-core/mis"
    settings: ClassVar[Mapping[str, object]] = {"mis_level": "geometric", "mis_mode": "clip"}


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-m", "", __file__]))
