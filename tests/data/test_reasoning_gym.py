"""reasoning-gym: endless rows by weight, and its own scores."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import ClassVar

import pytest

from slime_core.data import PromptSource, ReasoningGymReward, reasoning_gym_source
from slime_core.data.settings import ReasoningGymRewardSettings, ReasoningGymSettings
from slime_core.errors import ConfigError, UnknownName
from slime_core.roles import DataSourceSetup, RewardContext
from slime_core.sample import Json, Sample
from slime_core.score import Score, Unscored
from slime_testing import DataSourceContract

SetupOf = Callable[..., DataSourceSetup]
CONTEXT = RewardContext(rollout_id=0, evaluation=False, seed=0)


def make(setup: DataSourceSetup, **datasets: Json) -> PromptSource:
    return reasoning_gym_source(ReasoningGymSettings.model_validate({"datasets": datasets}), setup)


def test_without_it_the_extra_is_named(setup_of: SetupOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(ConfigError, match=r"install slime-core's extra `reasoning-gym`"):
        make(setup_of(), leg_counting={})
    with pytest.raises(ConfigError, match=r"install slime-core's extra `reasoning-gym`"):
        ReasoningGymReward(ReasoningGymRewardSettings())


@pytest.fixture(scope="module")
def gym() -> None:
    pytest.importorskip("reasoning_gym")


@pytest.mark.usefixtures("gym")
class TestSourceContract(DataSourceContract):
    choice = "slime-core/reasoning_gym"
    settings: ClassVar[Mapping[str, object]] = {"datasets": {"leg_counting": {}, "chain_sum": {"weight": 2.0}}}


@pytest.mark.usefixtures("gym")
class TestInstalled:
    def test_tasks_come_by_weight_and_never_again(self, setup_of: SetupOf) -> None:
        source = make(setup_of(), leg_counting={"weight": 3.0}, chain_sum={"config": {"min_terms": 2, "max_terms": 2}})
        groups = asyncio.run(source.draw(1024))
        assert Counter(group.id.source for group in groups) == {"leg_counting": 768, "chain_sum": 256}
        prompts = {str(group.samples[0].prompt) for group in groups if group.id.source == "leg_counting"}
        assert len(prompts) > 750  # a chunk of 500 is left behind

    def test_it_continues_exactly(self, setup_of: SetupOf) -> None:
        whole, parts = (make(setup_of(), leg_counting={}, list_functions={}) for _ in range(2))
        asyncio.run(whole.draw(700))
        asyncio.run(parts.draw(700))
        resumed = make(setup_of(), leg_counting={}, list_functions={})
        resumed.load_state_dict(json.loads(json.dumps(parts.state_dict())))
        assert asyncio.run(resumed.draw(400)) == asyncio.run(whole.draw(400))

    def test_its_scorer_scores(self, setup_of: SetupOf) -> None:
        reward = ReasoningGymReward(ReasoningGymRewardSettings())
        source = make(setup_of(), leg_counting={}, countdown={})
        for group in asyncio.run(source.draw(8)):
            sample = group.samples[0]
            sample.response = f"<answer>1</answer> no: <answer> {sample.label} </answer>"
            assert reward(sample, CONTEXT) == Score(1.0, {"answered": 1.0})
            sample.response = "no tags"
            verdict = reward(sample, CONTEXT)
            assert isinstance(verdict, Score)
            assert verdict.value < 0.1
        assert isinstance(reward(Sample(response="?"), CONTEXT), Unscored)

    def test_without_a_tag_the_whole_response_counts(self, setup_of: SetupOf) -> None:
        sample = asyncio.run(make(setup_of(), leg_counting={}).draw(1))[0].samples[0]
        sample.response = f" {sample.label}\n"
        verdict = ReasoningGymReward(ReasoningGymRewardSettings(tag=""))(sample, CONTEXT)
        assert verdict == Score(1.0, {"answered": 1.0})

    def test_mistakes_are_named(self, setup_of: SetupOf) -> None:
        with pytest.raises(UnknownName, match=r"reasoning-gym has no data set 'leg_count'.*leg_counting"):
            make(setup_of(), leg_count={})
        with pytest.raises(ConfigError, match="refuses the configuration of 'leg_counting'"):
            make(setup_of(), leg_counting={"config": {"legs": 4}})
