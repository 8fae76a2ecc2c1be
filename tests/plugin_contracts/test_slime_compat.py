"""slime-compat against the contract kit, around functions in slime's form: `python test_slime_compat.py`."""

import subprocess
import sys

from slime_testing import PluginPackageContract

NUM_GPUS = 0


class TestPackage(PluginPackageContract):
    dist = "slime-compat"


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-m", "", __file__]))
