import json

import pytest

from slime_agent_openai.errors import AgentError
from slime_agent_openai.remote_agents import Form, place_of, reward_of
from slime_agent_openai.task import Task, Verdict

FORM = Form("math", "results", "default", "prompt", "answer")
TASK = Task(
    "17 + 25?", "42", "http://10.0.0.7:9090/s/key", "key", {"level": 3}, sampling={"temperature": 0.7, "max_tokens": 9}
)


def payload(form: Form = FORM, task: Task = TASK) -> dict[str, object]:
    return dict(json.loads(form.payload(task, "the-input")))


def test_a_payload_is_the_row_and_where_the_model_is() -> None:
    assert payload() == {
        "prompt": "17 + 25?",
        "answer": "42",
        "level": 3,
        "_rollout": {
            "exp_id": "math",
            "input_id": "the-input",
            "s3_bucket": "results",
            "base_url": "http://10.0.0.7:9090/s/key/v1",
            "api_key": "key",
            "model_id": "default",
            "sampling_params": {"temperature": 0.7, "max_tokens": 9},
            "evaluation": False,
        },
    }


def test_metadata_has_the_last_word_but_not_about_the_run() -> None:
    task = Task("for the run", "1", "u", "k", {"prompt": "for the agent", "answer": "2", "_rollout": "?"})
    made = payload(task=task)
    assert (made["prompt"], made["answer"]) == ("for the agent", "2")
    assert isinstance(made["_rollout"], dict)


def test_prompt_and_label_may_be_elsewhere_or_nowhere() -> None:
    made = payload(Form("math", "results", "default", "question", ""))
    assert set(made) == {"question", "level", "_rollout"}


def test_more_of_rollout_replaces_the_runs_sampling() -> None:
    form = Form("math", "results", "default", "", "", {"sampling_params": {"top_p": 0.5}, "tools": ["calc"]})
    rollout = payload(form)["_rollout"]
    assert isinstance(rollout, dict)
    assert (rollout["sampling_params"], rollout["tools"], rollout["exp_id"]) == ({"top_p": 0.5}, ["calc"], "math")


def test_the_place_is_the_one_that_the_runtime_says() -> None:
    said = {"status": "processing", "s3_bucket": "results", "result_key": "math/1/2.json"}
    assert place_of(json.dumps(said).encode(), "results") == "math/1/2.json"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"Hello!", "the runtime's answer is not JSON .*'Hello!'"),
        (b"[1]", "the runtime's answer is a list, expected an object"),
        (b'{"status": "processing"}', "expected s3_bucket 'results' and a result_key. Is its entry point"),
        (b'{"s3_bucket": "others", "result_key": "k"}', "expected s3_bucket 'results'"),
        (b'{"s3_bucket": "results", "result_key": ""}', "expected s3_bucket 'results'"),
        (b"\xff" * 10_000, "the runtime's answer is not JSON"),
    ],
)
def test_an_answer_that_says_no_place_is_told(answer: bytes, said: str) -> None:
    with pytest.raises(AgentError, match=said) as caught:
        place_of(answer, "results")
    assert caught.value.reason == "agent_remote_answer"
    assert len(caught.value.detail) <= 800


@pytest.mark.parametrize(
    ("rewards", "verdict"),
    [
        (1, 1.0),
        (0.25, 0.25),
        ([0.0, 0.5, 1.0], 1.0),
        ({"score": 0.5, "steps": 3}, {"score": 0.5, "steps": 3.0}),
    ],
)
def test_a_result_holds_a_reward(rewards: object, verdict: Verdict) -> None:
    result = json.dumps({"rewards": rewards, "status_code": 200, "stop_reason": "end_turn"}).encode()
    assert reward_of(result, "rewards") == verdict


def test_a_result_that_says_no_status_is_one_that_succeeded() -> None:
    assert reward_of(b'{"score": 0.5}', "score") == 0.5


def test_without_a_key_the_run_gives_the_reward() -> None:
    assert reward_of(b'{"rewards": "whatever"}', "") is None


@pytest.mark.parametrize(
    "rewards",
    [
        "null",
        '"1.0"',
        "[]",
        "{}",
        "NaN",
        "1" + "0" * 400,
        "[1.0, Infinity]",
        '[1.0, "no"]',
        '{"a": null}',
        '{"a": NaN}',
    ],
)
def test_what_is_no_finite_reward_is_told(rewards: str) -> None:
    with pytest.raises(AgentError, match="expected a finite number, or some by name") as caught:
        reward_of(f'{{"rewards": {rewards}}}'.encode(), "rewards")
    assert caught.value.reason == "agent_remote_reward"


def test_a_result_without_a_reward_says_what_it_has() -> None:
    with pytest.raises(AgentError, match="the result has no 'rewards'; it has reward, stop_reason") as caught:
        reward_of(b'{"reward": 1.0, "stop_reason": "end_turn"}', "rewards")
    assert caught.value.reason == "agent_remote_reward"


def test_a_result_of_an_agent_that_failed_says_why_and_its_last_words_are_kept() -> None:
    result = {"status_code": 500, "stop_reason": "no river", "traceback": "x" * 5_000 + "KeyError: 'no river'"}
    with pytest.raises(AgentError) as caught:
        reward_of(json.dumps(result).encode(), "rewards")
    assert caught.value.reason == "agent_remote_failed"
    assert caught.value.detail.endswith("KeyError: 'no river'")
    assert len(caught.value.detail) == 800


@pytest.mark.parametrize("result", [b"<html>" + b"x" * 5_000, b"[" * 100_000])
def test_a_result_that_is_no_json_is_told(result: bytes) -> None:
    with pytest.raises(AgentError, match="the result is not JSON") as caught:
        reward_of(result, "rewards")
    assert caught.value.reason == "agent_remote_result"
    assert len(caught.value.detail) <= 800
