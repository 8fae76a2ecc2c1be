"""The core's own tensor roles against the contract kit: `python test_builtin_tensors.py`."""

import subprocess
import sys

from slime_core.testing import AdvantageContract, CorrectionContract, LossContract

NUM_GPUS = 0


class TestGrpo(AdvantageContract):
    choice = "slime-core/grpo"


class TestPolicyLoss(LossContract):
    choice = "slime-core/policy_loss"


class TestSftLoss(LossContract):
    choice = "slime-core/sft_loss"
    policy_gradient = False


class TestTis(CorrectionContract):
    choice = "slime-core/tis"


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", __file__]))
