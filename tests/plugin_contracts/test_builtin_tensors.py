"""The tensor roles of slime-train against the contract kit: `python test_builtin_tensors.py`."""

import subprocess
import sys
from collections.abc import Mapping
from typing import ClassVar

from slime_testing import AdvantageContract, CorrectionContract, LossContract

NUM_GPUS = 0


class TestGrpo(AdvantageContract):
    choice = "slime-train/grpo"


class TestGrpoWhitened(AdvantageContract):
    choice = "slime-train/grpo"
    settings: ClassVar[Mapping[str, object]] = {"normalize_advantages": True}
    independent_groups = False


class TestGrpoScaledByTheBatch(AdvantageContract):
    choice = "slime-train/grpo"
    settings: ClassVar[Mapping[str, object]] = {"scale_rewards": "batch"}
    independent_groups = False


class TestGdpo(AdvantageContract):
    choice = "slime-train/gdpo"
    settings: ClassVar[Mapping[str, object]] = {"reward_weights": {"right": 1.0, "short": 0.5}}
    independent_groups = False


class TestRloo(AdvantageContract):
    choice = "slime-train/rloo"


class TestMaxRl(AdvantageContract):
    choice = "slime-train/max_rl"


class TestGpg(AdvantageContract):
    choice = "slime-train/gpg"
    independent_groups = False


class TestReinforcePlusPlus(AdvantageContract):
    choice = "slime-train/reinforce_plus_plus"
    independent_groups = False


class TestReinforcePlusPlusBaseline(AdvantageContract):
    choice = "slime-train/reinforce_plus_plus_baseline"
    independent_groups = False


class TestPpo(AdvantageContract):
    choice = "slime-train/ppo"
    independent_groups = False


class TestPpoAsItIs(AdvantageContract):
    choice = "slime-train/ppo"
    settings: ClassVar[Mapping[str, object]] = {"normalize_advantages": False, "gamma": 0.9, "lambd": 0.8}


class TestPolicyLoss(LossContract):
    choice = "slime-train/policy_loss"


class TestPolicyLossWithEverything(LossContract):
    choice = "slime-train/policy_loss"
    settings: ClassVar[Mapping[str, object]] = {"entropy_coef": 0.01, "use_opsm": True, "eps_clip_c": 3.0}


class TestGspo(LossContract):
    choice = "slime-train/gspo"


class TestCispo(LossContract):
    choice = "slime-train/cispo"


class TestSftLoss(LossContract):
    choice = "slime-train/sft_loss"
    policy_gradient = False


class TestTis(CorrectionContract):
    choice = "slime-train/tis"


class TestIcepop(CorrectionContract):
    choice = "slime-train/icepop"


class TestMis(CorrectionContract):
    choice = "slime-train/mis"


class TestMisOfSequences(CorrectionContract):
    choice = "slime-train/mis"
    settings: ClassVar[Mapping[str, object]] = {
        "mis_level": "sequence",
        "mis_mode": "mask",
        "mis_veto_threshold": 1e-4,
    }


class TestMisOfGeometricMeans(CorrectionContract):
    choice = "slime-train/mis"
    settings: ClassVar[Mapping[str, object]] = {"mis_level": "geometric", "mis_mode": "clip"}


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-m", "", __file__]))
