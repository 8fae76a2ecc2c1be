"""One way to score a sample."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from slime_core import Sample, Verdict
from slime_core.roles import RewardContext, Setup
from slime_core.sample import Json
from slime_reward_math.plugin import slime_rewards

Scoring = Callable[..., Verdict]


def refuse(role: str, name: str, **settings: object) -> object:
    raise AssertionError(f"{role} {name} is not to be built")


@pytest.fixture
def score() -> Scoring:
    """score("math", label, response, metadata={...}, strict_slime=True)"""
    specs = {spec.name: spec for spec in slime_rewards()}

    def scored(
        name: str,
        label: Json,
        response: str,
        metadata: Mapping[str, Json] | None = None,
        seed: int = 1,
        **settings: object,
    ) -> Verdict:
        spec = specs[name]
        reward = spec.factory(spec.model.model_validate(settings), Setup(refuse, seed=1))
        sample = Sample(label=label, response=response, metadata=dict(metadata or {}))
        return asyncio.run(reward(sample, RewardContext(0, False, seed)))  # type: ignore[arg-type]

    return scored
