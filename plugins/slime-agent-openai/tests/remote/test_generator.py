"""The generator as a run calls it: a deployed agent asks the gateway, whose engine says what it is told."""

from cloud import Cloud
from run_generator import generated, generator_named
from talker import Talker

from slime_core import Sample, Status
from slime_testing import make_pending


def play(
    cloud: Cloud, talker: Talker, label: str = "Answer 0", *, evaluation: bool = False, **settings: object
) -> Sample:
    """The sample of a prompt."""
    generator = generator_named("agent_remote", **cloud.settings(**settings))
    ((sample,),) = generated(generator, talker, make_pending(prompt="17 + 25?", label=label), evaluation=evaluation)
    assert not list(sample.problems())
    return sample


def last(cloud: Cloud, what: str) -> dict[str, object]:
    return cloud.log(what)[-1]


def test_remote_conversation_is_one_rewarded_sample(cloud: Cloud, talker: Talker) -> None:
    sample = play(cloud, talker, "Answer 1", rollout={"turns": 2})
    assert (sample.status, sample.reward) == (Status.COMPLETED, 1.0)
    trained = [t for t, bit in zip(sample.tokens[sample.prompt_length :], sample.loss_mask or (), strict=True) if bit]
    assert trained == [token for asked in talker.log for token in asked.output]


def test_remote_agent_gets_the_run_sampling(cloud: Cloud, talker: Talker) -> None:
    play(cloud, talker, model_id="my-policy")
    payload = last(cloud, "invoke")["payload"]
    assert isinstance(payload, dict)
    told = payload["_rollout"]
    assert told["sampling_params"] == {"temperature": 1.0, "top_p": 1.0, "max_tokens": 400}
    assert (told["model_id"], told["evaluation"]) == ("my-policy", False)
    assert (payload["prompt"], payload["answer"]) == ("17 + 25?", "Answer 0")
    play(cloud, talker, evaluation=True)
    assert last(cloud, "invoke")["payload"]["_rollout"]["evaluation"] is True
