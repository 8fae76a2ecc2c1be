"""The generator as a run calls it: a deployed agent asks the gateway, whose engine says what it is told."""

import asyncio

import pytest
from chat import load_chat
from cloud import Cloud
from talker import Talker

from slime_agent_openai.plugin import slime_generators
from slime_core import Sample, Status
from slime_core.data import HfTokenizer
from slime_core.roles import FinishReason, Setup, StartsAndStops
from slime_testing import make_pending


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> HfTokenizer:
    return load_chat(tmp_path_factory.mktemp("chatml"))


@pytest.fixture
def talker(tokenizer: HfTokenizer) -> Talker:
    return Talker(tokenizer, lambda text, turn: f"Answer {turn}")


def play(
    cloud: Cloud, talker: Talker, label: str = "Answer 0", *, evaluation: bool = False, **settings: object
) -> Sample:
    """The sample of a prompt."""
    spec = next(each for each in slime_generators() if each.name == "agent_remote")
    made = spec.factory(spec.model.model_validate(cloud.settings(**settings)), Setup(None, seed=0))  # type: ignore[arg-type]
    assert isinstance(made, StartsAndStops)

    async def run() -> list[Sample]:
        await made.start()
        try:
            asked = make_pending(prompt="17 + 25?", label=label)
            return await asyncio.wait_for(made(asked, talker.context(evaluation=evaluation)), 60)
        finally:
            await made.close()

    (sample,) = asyncio.run(run())
    assert not list(sample.problems())
    return sample


def last(cloud: Cloud, what: str) -> dict[str, object]:
    return cloud.log(what)[-1]


def test_a_conversation_is_one_sample_with_the_reward_of_the_result(cloud: Cloud, talker: Talker) -> None:
    sample = play(cloud, talker, "Answer 1", rollout={"turns": 2})
    assert (sample.status, sample.reward) == (Status.COMPLETED, 1.0)
    trained = [t for t, bit in zip(sample.tokens[sample.prompt_length :], sample.loss_mask or (), strict=True) if bit]
    assert trained == [token for asked in talker.log for token in asked.output]


def test_the_agent_is_told_the_runs_sampling_which_is_no_reason_to_refuse_it(cloud: Cloud, talker: Talker) -> None:
    play(cloud, talker, model_id="my-policy")
    payload = last(cloud, "invoke")["payload"]
    assert isinstance(payload, dict)
    told = payload["_rollout"]
    assert told["sampling_params"] == {"temperature": 1.0, "top_p": 1.0, "max_tokens": 400}
    assert (told["model_id"], told["evaluation"]) == ("my-policy", False)
    assert (payload["prompt"], payload["answer"]) == ("17 + 25?", "Answer 0")


def test_evaluation_is_told_as_such(cloud: Cloud, talker: Talker) -> None:
    assert play(cloud, talker, evaluation=True).status is Status.COMPLETED
    payload = last(cloud, "invoke")["payload"]
    assert isinstance(payload, dict)
    assert payload["_rollout"]["evaluation"] is True


def test_the_rewards_of_the_run_may_judge_instead(cloud: Cloud, talker: Talker) -> None:
    assert play(cloud, talker, reward_key="").reward is None


def test_an_agent_that_fails_keeps_what_it_made(cloud: Cloud, talker: Talker) -> None:
    sample = play(cloud, talker, max_turns=2, rollout={"turns": 2}, reward_key="score")
    assert (sample.status, sample.failure_reason) == (Status.FAILED, "agent_remote_reward")
    assert "the result has no 'score'" in str(sample.metadata["failure_detail"])
    assert sample.effective_response_length == sum(len(asked.output) for asked in talker.log)


def test_more_turns_than_allowed_truncate_the_sample(cloud: Cloud, talker: Talker) -> None:
    sample = play(cloud, talker, max_turns=1, rollout={"turns": 2})
    assert (sample.status, sample.failure_reason) == (Status.TRUNCATED, None)


def test_an_interrupted_sample_stops_its_session(cloud: Cloud, talker: Talker) -> None:
    talker.finish = FinishReason.ABORT
    assert play(cloud, talker).status is Status.ABORTED
    assert last(cloud, "stop")["session"] == last(cloud, "invoke")["session"]
