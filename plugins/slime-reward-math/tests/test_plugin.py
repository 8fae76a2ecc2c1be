import asyncio

from slime_core import RewardContext, Sample, Score, Unscored, Verdict
from slime_core.catalog import Catalog
from slime_core.sample import Json
from slime_reward_math.plugin import math


def score(label: Json, response: str) -> Verdict:
    ctx = RewardContext(rollout_id=0, evaluation=False, seed=1)
    return asyncio.run(math(Sample(label=label, response=response), ctx))


def test_a_right_answer_earns_one() -> None:
    assert score("1/2", r"\boxed{0.5}") == Score(1.0, {"answered": 1.0})


def test_a_wrong_answer_earns_nothing() -> None:
    assert score("1/2", r"\boxed{2}") == Score(0.0, {"answered": 1.0})


def test_a_missing_answer_earns_nothing_and_is_counted() -> None:
    assert score("1/2", "one half") == Score(0.0, {"answered": 0.0})


def test_a_row_without_a_gold_answer_is_unscored() -> None:
    assert score(None, r"\boxed{2}") == Unscored("no gold answer")


def test_the_installed_plugin_offers_the_reward_math() -> None:
    found = Catalog.discover().find("reward", "math")
    assert found.qualified == "slime-reward-math/math"
    assert found.origin.split(":")[0] == math.__code__.co_filename
