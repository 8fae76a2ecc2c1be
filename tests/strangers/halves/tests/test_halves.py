"""The contracts of slime-core: two replicas of two ranks each, on the kit's own model."""

from collections.abc import Mapping
from typing import ClassVar

from slime_testing import PluginPackageContract, TrainerContract


class TestPackage(PluginPackageContract):
    dist = "slime-trainer-halves"


class TestTrainer(TrainerContract):
    choice = "slime-trainer-halves/halves"
    multi_rank_settings: ClassVar[Mapping[str, object]] = {"replicas": 2, "pieces": 2}
    other_layout_settings: ClassVar[Mapping[str, object] | None] = {"replicas": 2, "pieces": 1}
