"""The math plugin against the contract kit, as any third party would write it: `python test_reward_math.py`."""

import subprocess
import sys

from slime_testing import PluginPackageContract, RewardContract, make_sample

NUM_GPUS = 0


class TestPackage(PluginPackageContract):
    dist = "slime-reward-math"


class TestMath(RewardContract):
    choice = "slime-reward-math/math"
    good = make_sample(response=r"Half of one is $\boxed{\frac{1}{2}}$.", label="0.5")
    bad = make_sample(response=r"Half of one is $\boxed{2}$.", label="0.5")


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-m", "", __file__]))
