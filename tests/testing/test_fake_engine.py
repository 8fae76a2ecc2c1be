"""The fake engine as clients meet it: over HTTP, well and badly behaved."""

import http.client
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from slime_core.sample import Json
from slime_testing.fake_engine import (
    Answer,
    Behaviour,
    Disconnect,
    Ended,
    FailThenOk,
    FakeEngine,
    Flaw,
    Malformed,
    Slow,
)
from tests.tables import table

Start = Callable[..., FakeEngine]
LONG = {"max_new_tokens": 100, "ignore_eos": True}


class Client:
    """One connection, kept alive, without retries."""

    def __init__(self, engine: FakeEngine) -> None:
        self.connection = http.client.HTTPConnection(urlsplit(engine.url).netloc, timeout=30)

    def send(self, method: str, path: str, body: Json = None) -> http.client.HTTPResponse:
        payload = None if body is None else json.dumps(body)
        self.connection.request(method, path, payload, {"content-type": "application/json"})
        return self.connection.getresponse()

    def post(self, path: str, body: Json) -> tuple[int, dict]:
        response = self.send("POST", path, body)
        return response.status, json.loads(response.read() or b"{}")

    def generate(self, prompt: Json = (5, 6), sampling: Mapping[str, Json] | None = None, **more: Json) -> dict:
        body = {"input_ids": prompt, "sampling_params": sampling or {}, "return_logprob": True, **more}
        status, answer = self.post("/generate", body)
        assert status == 200, answer
        return answer

    def events(self, path: str, body: dict[str, Json]) -> list[str]:
        response = self.send("POST", path, {**body, "stream": True})
        assert (response.status, response.headers.get_content_type()) == (200, "text/event-stream")
        parts = response.read().decode().split("\n\n")
        assert parts[-1] == ""
        return [part.removeprefix("data: ") for part in parts[:-1]]


@pytest.fixture
def connect() -> Iterator[Callable[[FakeEngine], Client]]:
    clients: list[Client] = []

    def make(engine: FakeEngine) -> Client:
        clients.append(Client(engine))
        return clients[-1]

    yield make
    for client in clients:
        client.connection.close()


Connect = Callable[[FakeEngine], Client]


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def eventually(met: Callable[[], object]) -> None:
    until = time.monotonic() + 30
    while not met():
        assert time.monotonic() < until
        time.sleep(0.002)


def start_one(client: Client, engine: FakeEngine, pool: ThreadPoolExecutor, rid: str = "r1") -> Future[dict]:
    """A long generation under way in the background."""
    before = len(engine.running)
    asked = pool.submit(client.generate, sampling=LONG, rid=rid)
    eventually(lambda: len(engine.running) > before)
    return asked


@table(
    "sampling, ids, text, finish",
    [
        ({}, [97, 98, 99, 0], "abc", {"type": "stop", "matched": 0}),
        ({"stop_token_ids": [98]}, [97, 98], "a", {"type": "stop", "matched": 98}),
        ({"stop_token_ids": [98], "no_stop_trim": True}, [97, 98], "ab", {"type": "stop", "matched": 98}),
        ({"stop": ["bc", "x"]}, [97, 98, 99], "a", {"type": "stop", "matched": "bc"}),
        ({"max_new_tokens": 2}, [97, 98], "ab", {"type": "length", "length": 2}),
        ({"ignore_eos": True, "stop_token_ids": [98]}, [97, 98, 99, 0, 100], "abcd", {"type": "stop", "matched": 100}),
        ({"min_new_tokens": 4}, [97, 98, 99, 100], "abcd", {"type": "stop", "matched": 100}),
        ({"max_new_tokens": 0}, [], "", {"type": "length", "length": 0}),
    ],
)
def test_what_is_sampled_ends_as_asked(
    fake_engine: Start, connect: Connect, sampling: dict[str, Json], ids: list[int], text: str, finish: dict[str, Json]
) -> None:
    answer = connect(fake_engine(Answer(tokens=(97, 98, 99, 0, 100)))).generate(sampling=sampling)
    assert (answer["output_ids"], answer["text"], answer["meta_info"]["finish_reason"]) == (ids, text, finish)


@table(
    "body, told",
    [
        ({"input_ids": [5] * 2048}, "longer than the model's context length"),
        (
            {"input_ids": [5], "sampling_params": {"max_tokens": 3}},
            "sampling_params.max_tokens: Extra inputs are not permitted",
        ),
        ({"input_ids": [5], "sampling_params": {"max_new_tokens": "many"}}, "sampling_params.max_new_tokens"),
        ({"input_ids": []}, "input_ids: List should have at least 1 item"),
        ({}, "input_ids: Field required"),
    ],
)
def test_what_sglang_refuses_is_refused(fake_engine: Start, connect: Connect, body: dict[str, Json], told: str) -> None:
    engine = fake_engine(FailThenOk())
    client = connect(engine)
    status, answer = client.post("/generate", body)
    assert status == 400
    assert told in answer["error"]["message"]
    assert engine.generations == ()


def test_behaviours_are_met_in_turn(fake_engine: Start, connect: Connect) -> None:
    engine = fake_engine(Answer((97, 0)), FailThenOk(status=503), Answer((98, 0)))
    client = connect(engine)
    statuses = [client.post("/generate", {"input_ids": [5]})[0] for _ in range(4)]
    assert statuses == [200, 503, 200, 200]
    assert [generation.tokens for generation in engine.generations] == [(97, 0), (), (98, 0), (98, 0)]
    ends = [generation.ended for generation in engine.generations]
    assert ends == [Ended.ANSWERED, Ended.FAILED, Ended.ANSWERED, Ended.ANSWERED]


def test_an_abort_names_one_or_all(fake_engine: Start, connect: Connect, background: ThreadPoolExecutor) -> None:
    engine = fake_engine(Slow(600.0))
    asked = [start_one(connect(engine), engine, background, rid) for rid in ("a", "b", "c")]
    client = connect(engine)
    client.post("/abort_request", {"rid": "nobody"})
    client.post("/abort_request", {"rid": "b", "abort_message": "enough"})
    assert asked[1].result()["meta_info"]["finish_reason"]["message"] == "enough"
    assert sorted(engine.running) == ["a", "c"]
    client.post("/abort_request", {"abort_all": True})
    assert {each.result()["meta_info"]["finish_reason"]["type"] for each in asked} == {"abort"}
    assert engine.running == ()


@pytest.mark.parametrize("mode", ["in_place", "retract"])
def test_a_paused_generation_goes_on_with_the_new_weights(
    fake_engine: Start, connect: Connect, tmp_path: Path, mode: str
) -> None:
    engine = fake_engine(Slow(2.0))
    client = connect(engine)
    body: Json = {"input_ids": [5], "sampling_params": dict(LONG), "stream": True}
    stream = connect(engine).send("POST", "/generate", body)
    assert stream.readline()  # a token is there
    assert client.post("/pause_generation", {"mode": mode})[1]["status"] == "ok"
    assert engine.paused
    update: dict[str, Json] = {"model_path": str(tmp_path), "weight_version": "7"}
    flushed = client.post("/update_weights_from_disk", update)
    assert flushed[0] == (400 if mode == "in_place" else 200)
    if mode == "in_place":
        assert "the cache was not flushed" in flushed[1]["message"]
        assert client.post("/update_weights_from_disk", {**update, "flush_cache": False})[0] == 200
    client.post("/continue_generation", {})
    meta = json.loads(stream.read().split(b"data: ")[-2])["meta_info"]
    first, second = meta["weight_versions"]
    assert (first["version"], second["version"], second["end"]) == ("default", "7", 100)
    assert first["end"] == second["start"]
    assert (meta["weight_version"], meta["num_retractions"]) == ("7", int(mode == "retract"))


def test_an_answer_may_be_malformed(fake_engine: Start, connect: Connect) -> None:
    engine = fake_engine(*map(Malformed, (Flaw.SHORT_LOG_PROBS, *[Flaw.BROKEN_JSON, Flaw.TRUNCATED] * 2)))
    body: dict[str, Json] = {"input_ids": [5], "sampling_params": dict(LONG)}
    short = connect(engine).generate(sampling=LONG)
    assert (len(short["output_ids"]), len(short["meta_info"]["output_token_logprobs"])) == (100, 99)
    with pytest.raises(json.JSONDecodeError):
        connect(engine).post("/generate", body)
    with pytest.raises(http.client.IncompleteRead):
        connect(engine).post("/generate", body)
    *_, last, end = connect(engine).events("/generate", body)
    assert end == "[DONE]"
    with pytest.raises(json.JSONDecodeError):
        json.loads(last)
    assert len(connect(engine).events("/generate", body)) == 50


def test_a_connection_can_be_dropped(fake_engine: Start, connect: Connect) -> None:
    engine = fake_engine(Disconnect(), Answer())
    with pytest.raises(ConnectionError):
        connect(engine).post("/generate", {"input_ids": [5]})
    assert len(connect(engine).generate(sampling=LONG)["output_ids"]) == 100
    assert [each.ended for each in engine.generations] == [Ended.FAILED, Ended.ANSWERED]


@table(
    "make, told",
    [
        (lambda: Answer((-1,)), "code points"),
        (lambda: Slow(-1.0), "0 or more"),
        (lambda: Slow(math.nan), "0 or more"),
        (lambda: FailThenOk(status=200), "status from 400 to 599"),
        (lambda: FailThenOk(times=0), "times of at least 1"),
    ],
)
def test_a_script_that_makes_no_sense_is_refused(make: Callable[[], Behaviour], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make()


def test_it_stops_at_once_and_leaves_nothing(connect: Connect, background: ThreadPoolExecutor) -> None:
    before = threading.active_count()
    with FakeEngine(Slow(600.0)) as engine:
        client = connect(engine)
        asked = start_one(client, engine, background)
        running = threading.active_count()
    with pytest.raises(ConnectionError):
        asked.result()
    assert threading.active_count() == running - 1 >= before
    with pytest.raises(ConnectionError):
        connect(engine).send("GET", "/health")
