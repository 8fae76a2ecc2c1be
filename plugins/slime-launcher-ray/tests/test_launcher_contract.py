"""The launcher contract on a local cluster."""

from slime_testing import LauncherContract


class TestRay(LauncherContract):
    choice = "slime-launcher-ray/ray"
