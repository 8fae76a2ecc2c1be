"""Every choice of the plugin, and its package, against the contract kit."""

from collections.abc import Mapping
from typing import ClassVar

from slime_testing import AdvantageContract, LossContract, PluginPackageContract


class TestPackage(PluginPackageContract):
    dist = "slime-algorithms"


class TestSapo(LossContract):
    choice = "slime-algorithms/sapo"
    policy_gradient = True


class TestGmpo(LossContract):
    choice = "slime-algorithms/gmpo"
    policy_gradient = True


class TestDppo(LossContract):
    choice = "slime-algorithms/dppo"
    policy_gradient = True


class TestDppoByKl(LossContract):
    choice = "slime-algorithms/dppo"
    settings: ClassVar[Mapping[str, object]] = {"divergence": "kl"}
    policy_gradient = True


class TestOpo(AdvantageContract):
    choice = "slime-algorithms/opo"


class TestPassAtK(AdvantageContract):
    choice = "slime-algorithms/pass_at_k"
    settings: ClassVar[Mapping[str, object]] = {"k": 2}
