"""Parts of remote agents without a runtime: payloads and results, threads, pace, and what stops sessions."""

import asyncio
import json
import threading
from itertools import pairwise

import pytest
from cloud_server import ARN

from slime_agent_openai.errors import AgentError
from slime_agent_openai.remote_agents import RateLimiter, Threads, payload_of, result_key_of, reward_of
from slime_agent_openai.remote_settings import RemoteSettings
from slime_agent_openai.task import Task, Verdict
from tests.tables import table

TASK = Task(
    "17 + 25?", "42", "http://10.0.0.7:9090/s/key", "key", {"level": 3}, sampling={"temperature": 0.7, "max_tokens": 9}
)


def payload(task: Task = TASK, **changes: object) -> dict[str, object]:
    given = {"agent_runtime_arn": ARN, "s3_bucket": "results", "exp_id": "math", "endpoint_url": "http://127.0.0.1:9"}
    return dict(json.loads(payload_of(RemoteSettings.model_validate(given | changes), task, "the-input")))


def test_payload_has_the_row_and_the_endpoint() -> None:
    rollout = {
        "exp_id": "math",
        "input_id": "the-input",
        "s3_bucket": "results",
        "base_url": "http://10.0.0.7:9090/s/key/v1",
        "api_key": "key",
        "model_id": "default",
        "sampling_params": {"temperature": 0.7, "max_tokens": 9},
        "evaluation": False,
    }
    assert payload() == {"prompt": "17 + 25?", "answer": "42", "level": 3, "_rollout": rollout}
    task = Task("for the run", "1", "u", "k", {"prompt": "for the agent", "answer": "2", "_rollout": "?"})
    made = payload(task)
    assert (made["prompt"], made["answer"]) == ("for the agent", "2")
    assert isinstance(made["_rollout"], dict)
    assert set(payload(prompt_key="question", label_key="")) == {"question", "level", "_rollout"}
    more = payload(rollout={"sampling_params": {"top_p": 0.5}, "tools": ["calc"]})["_rollout"]
    assert more == {**rollout, "sampling_params": {"top_p": 0.5}, "tools": ["calc"]}


@table(
    "answer, said",
    [
        (b"Hello!", "the runtime's answer is not JSON .*'Hello!'"),
        (b"[1]", "the runtime's answer is a list, expected an object"),
        (b'{"status": "processing"}', "expected s3_bucket 'results' and a result_key. Its entry point must be"),
        (b'{"s3_bucket": "others", "result_key": "k"}', "expected s3_bucket 'results'"),
        (b'{"s3_bucket": "results", "result_key": ""}', "expected s3_bucket 'results'"),
        (b"\xff" * 10_000, "the runtime's answer is not JSON"),
    ],
)
def test_answer_without_a_location_is_refused(answer: bytes, said: str) -> None:
    with pytest.raises(AgentError, match=said) as caught:
        result_key_of(answer, "results")
    assert caught.value.reason == "agent_remote_answer"
    assert len(caught.value.detail) <= 800
    given = {"status": "processing", "s3_bucket": "results", "result_key": "math/1/2.json"}
    assert result_key_of(json.dumps(given).encode(), "results") == "math/1/2.json"


@table(
    "result, key, verdict",
    [
        ('{"rewards": 1, "status_code": 200, "stop_reason": "end_turn"}', "rewards", 1.0),
        ('{"rewards": 0.25}', "rewards", 0.25),
        ('{"rewards": [0.0, 0.5, 1.0]}', "rewards", 1.0),
        ('{"rewards": {"score": 0.5, "steps": 3}}', "rewards", {"score": 0.5, "steps": 3.0}),
        ('{"score": 0.5}', "score", 0.5),
        ('{"rewards": "whatever"}', "", None),
    ],
)
def test_reward_is_read_from_a_result(result: str, key: str, verdict: Verdict) -> None:
    assert reward_of(result.encode(), key) == verdict


@table("rewards", ["null", '"1.0"', "[]", "{}", "NaN", "1" + "0" * 400, "[1.0, Infinity]", '[1.0, "no"]', '{"a": NaN}'])
def test_non_finite_reward_is_refused(rewards: str) -> None:
    with pytest.raises(AgentError, match="expected finite numbers, one or by name") as caught:
        reward_of(f'{{"rewards": {rewards}}}'.encode(), "rewards")
    assert caught.value.reason == "agent_remote_reward"


FAILED = json.dumps({"status_code": 500, "stop_reason": "no river", "traceback": "x" * 5_000 + "KeyError: 'no river'"})


@table(
    "result, reason, said",
    [
        (
            '{"reward": 1.0, "stop_reason": "end_turn"}',
            "reward",
            "the result has no 'rewards'; it has reward, stop_reason",
        ),
        (FAILED, "failed", r"KeyError: 'no river'$"),
        ("<html>" + "x" * 5_000, "result", "the result is not JSON"),
        ("[" * 100_000, "result", "the result is not JSON"),
    ],
)
def test_result_without_a_reward_names_the_reason(result: str, reason: str, said: str) -> None:
    with pytest.raises(AgentError, match=said) as caught:
        reward_of(result.encode(), "rewards")
    assert caught.value.reason == f"agent_remote_{reason}"
    assert len(caught.value.detail) <= 800


def test_pace_spaces_calls_evenly() -> None:
    async def act() -> list[float]:
        """When they have their turns, by a clock that only sleeping moves."""
        loop, pace, now, had = asyncio.get_running_loop(), RateLimiter(10.0), 100.0, list[float]()

        async def one() -> None:
            await pace()
            had.append(loop.time())

        loop.time = lambda: now  # type: ignore[method-assign]
        asked = [asyncio.create_task(one()) for _ in range(4)]
        while not all(task.done() for task in asked):
            await asyncio.sleep(0)
            now += 0.01
        return had

    assert [round(later - earlier, 1) for earlier, later in pairwise(asyncio.run(act()))] == [0.1] * 3


async def test_thread_limit_holds_after_cancellation() -> None:
    threads, at_work, most, gate = Threads(2), 0, 0, threading.Event()
    lock = threading.Lock()

    def block() -> None:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        gate.wait(30)
        with lock:
            at_work -= 1

    gone = [asyncio.create_task(threads.call(block)) for _ in range(2)]
    while at_work < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    for task in gone:
        task.cancel()
    await asyncio.wait(gone)
    others = [asyncio.create_task(threads.call(block)) for _ in range(5)]
    await asyncio.sleep(0.02)
    gate.set()
    await threads.wait(30)  # for those without a caller
    await asyncio.gather(*others)
    await threads.wait(30)
    assert (most, at_work) == (2, 0)
