"""The contract of trainers, on one rank and on several."""

from collections.abc import Mapping
from typing import ClassVar

import pytest

from slime_testing import CheckStatus, TrainerContract


class Megatron(TrainerContract):
    """The installed trainer, on the kit's model."""

    choice = "slime-trainer-megatron/megatron"
    settings: ClassVar[Mapping[str, object]] = {"num_gpus": 1}
    multi_rank_settings: ClassVar[Mapping[str, object]] = {"num_gpus": 2, "tensor_model_parallel_size": 2}
    other_layout_settings: ClassVar[Mapping[str, object] | None] = {"num_gpus": 1}


@pytest.mark.timeout(300)
def test_the_trainer_keeps_the_contract() -> None:
    results = Megatron.report()
    assert {each.identity: each.detail for each in results if each.status is not CheckStatus.PASSED} == {}
    assert len(results) == 12
