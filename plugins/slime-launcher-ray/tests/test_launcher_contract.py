"""The contract of launchers, on a cluster of this machine."""

from slime_testing import LauncherContract


class TestRay(LauncherContract):
    choice = "slime-launcher-ray/ray"
