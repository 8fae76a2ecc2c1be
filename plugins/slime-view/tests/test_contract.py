"""The package as a whole against the contract kit."""

from slime_testing import PluginPackageContract


class TestPackage(PluginPackageContract):
    dist = "slime-view"
