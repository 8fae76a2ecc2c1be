"""Requests of the engine and its handling of responses, with the kit's fake server."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, cast

import pytest
from fake_server_engines import engine_on_fake_server, load

from slime_core.errors import ModelError, WorkerError
from slime_core.roles import Extra, FinishReason, GenerateOutput, GenerateRequest, SamplingParams
from slime_engine_sglang.engine import SglangEngine
from slime_engine_sglang.generate_api import with_scores
from slime_engine_sglang.server import Table
from slime_testing import publish_model
from slime_testing.fake_engine import (
    AbortMidway,
    Behaviour,
    Disconnect,
    Ended,
    FailThenOk,
    Flaw,
    Malformed,
    Slow,
    StaleVersion,
)
from tests.tables import table

T = TypeVar("T")
PLAIN = GenerateRequest((5, 6, 7), SamplingParams(8), 3)


async def read_stream(engine: SglangEngine) -> None:
    async for _ in engine.stream(PLAIN):
        pass


@table(
    "changes, message",
    [
        (
            {"sampling": SamplingParams(8, 0.7, logit_bias={3: 1.0}, min_new_tokens=2)},
            "min_new_tokens, logit_bias only at temperature 1 and 0, not at 0.7",
        ),
        (
            {"sampling": SamplingParams(8, repetition_penalty=1.2, presence_penalty=0.5), "num_generated": 2},
            "presence_penalty, repetition_penalty for an interrupted response",
        ),
        ({"sampling": SamplingParams(8, min_p=0.1)}, "min_p with deterministic = true"),
        ({"sampling": SamplingParams(8, stop=("x",)), "num_generated": 2}, "stop for an interrupted response"),
        ({"prompt": (5, 64)}, "ids outside the model's vocabulary, 0 to 63"),
        ({"prompt": ()}, "a prompt without tokens"),
        ({"media": {"image": ["cat.png"]}}, "media"),
        (
            {"sampling": SamplingParams(8, temperature=0.5), "want": frozenset({Extra.PROMPT_LOG_PROBS})},
            "prompt_log_probs only at temperature 1 and 0, not at 0.5",
        ),
        (
            {"sampling": SamplingParams(8, top_k=5000), "want": frozenset({Extra.TOP_P_TOKENS})},
            "top_p_tokens only for a top_k or a vocabulary of at most 4096",
        ),
    ],
)
async def test_unsupported_requests_are_refused(tmp_path: Path, changes: Mapping[str, object], message: str) -> None:
    async with engine_on_fake_server(tmp_path) as (engine, server):
        with pytest.raises(ModelError) as caught:
            await engine.generate(replace(PLAIN, **changes))  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert server.generations == ()


async def test_request_body_uses_sglang_names(tmp_path: Path) -> None:
    sampling = SamplingParams(8, 0.7, top_p=0.9, top_k=20, stop_token_ids=frozenset({9}), stop=("ab",))
    async with engine_on_fake_server(tmp_path) as (engine, server):
        await engine.generate(replace(PLAIN, sampling=sampling, seed=2**63 + 5))
    (body,) = [each.body for each in server.received if each.path == "/generate"]
    assert body.pop("rid")
    assert body == {
        "input_ids": [5, 6, 7],
        "return_logprob": True,
        "sampling_params": {
            "max_new_tokens": 8,
            "temperature": 0.7,
            "top_p": 0.9,
            "top_k": 20,
            "sampling_seed": 5,
            "stop_token_ids": [0, 9],
            "stop": ["ab"],
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "no_stop_trim": True,
        },
    }


async def test_shaped_samples_are_scored_by_a_second_call(tmp_path: Path) -> None:
    sampling = SamplingParams(6, frequency_penalty=0.5, min_new_tokens=5, logit_bias={6: 2.0}, ignore_eos=True)
    request = replace(PLAIN, prompt=(5, 6, 6), sampling=sampling, num_generated=2)
    async with engine_on_fake_server(tmp_path) as (engine, server):
        whole = await engine.generate(request)
        streamed = GenerateOutput.joined([chunk async for chunk in engine.stream(request)])
        text = {"input_ids": [*request.prompt, *whole.tokens], "return_logprob": True, "logprob_start_len": 2}
        read = await engine.server.ask("/generate", text)
    drawn, scored, *_ = [each.body for each in server.received if each.path == "/generate"]
    params = drawn["sampling_params"]
    shaped = {"frequency_penalty": 0.5, "min_new_tokens": 3, "logit_bias": {"6": 1.0}}
    assert params.items() >= shaped.items()
    assert scored.pop("rid") != drawn["rid"]
    assert scored == {
        "input_ids": [5, 6, 6, *whole.tokens],
        "sampling_params": {"max_new_tokens": 0, "temperature": 1.0},
        "return_logprob": True,
        "logprob_start_len": 2,
    }
    told = cast(Mapping[str, list[list[float]]], read["meta_info"])["input_token_logprobs"]
    assert whole.log_probs == [log_prob for log_prob, *_ in told[1:]]
    assert (streamed.tokens, streamed.log_probs) == (whole.tokens, whole.log_probs)


def test_scored_ids_must_match_the_response() -> None:
    output = GenerateOutput([63, 7], [-1.0, -2.0], FinishReason.LENGTH, 0)

    def reply(*ids: int) -> Table:
        entries = [[None, 5, None], *([-0.5, token, None] for token in ids)]
        return {"meta_info": {"finish_reason": {"type": "length"}, "input_token_logprobs": entries}}

    found = with_scores(output, reply(0, 7))
    assert found is not None
    assert found.log_probs == [-0.5, -0.5]
    with pytest.raises(ValueError, match="that differ from the response's 2"):
        with_scores(output, reply(63, 8))


async def test_weight_update_waits_for_scoring(tmp_path: Path) -> None:
    sampling = SamplingParams(40, min_new_tokens=1, ignore_eos=True)
    async with engine_on_fake_server(tmp_path, Slow(1.0)) as (engine, server):
        running = asyncio.create_task(engine.generate(replace(PLAIN, sampling=sampling)))
        await asyncio.sleep(0.2)
        await load(engine, tmp_path, 1)
        assert running.done()
        version = (await running).weight_version
    assert version == 0
    paths = [each.path for each in server.received if each.path != "/ready"]
    assert paths[-3:] == ["/pause_generation", "/update_weights_from_disk", "/continue_generation"]
    assert paths[-5:-3] == ["/generate", "/generate"]


async def test_token_budget_is_limited_by_the_context(tmp_path: Path) -> None:
    async with engine_on_fake_server(tmp_path, Slow(0.0)) as (engine, server):
        requests = [replace(PLAIN, prompt=[5] * length, sampling=SamplingParams(8)) for length in (2045, 2047, 2048)]
        outputs = [await engine.generate(each) for each in requests]
        sizes = [(len(each.tokens), each.finish) for each in outputs]
    assert sizes[1:] == [(1, FinishReason.LENGTH), (0, FinishReason.LENGTH)]
    assert [each.sampling.max_new_tokens for each in server.generations] == [3, 1]


@table("streamed", [False, True])
async def test_full_server_is_retried(tmp_path: Path, *, streamed: bool) -> None:
    async with engine_on_fake_server(tmp_path, FailThenOk(503, times=3)) as (engine, server):
        await (read_stream(engine) if streamed else engine.generate(PLAIN))
    assert [each.ended for each in server.generations] == [Ended.FAILED] * 3 + [Ended.ANSWERED]


async def test_request_timeout_aborts_the_request(tmp_path: Path) -> None:
    def aborted() -> list[object]:
        return [each.body for each in server.received if each.path == "/abort_request"]

    async with engine_on_fake_server(tmp_path, Slow(30.0), request_timeout_s=0.3) as (engine, server):
        for number, call in enumerate((engine.generate(PLAIN), read_stream(engine)), 1):
            with pytest.raises(WorkerError, match=r"no response to /generate within 0.3 s"):
                await call
            async with asyncio.timeout(30):
                while len(aborted()) < number:  # noqa: ASYNC110  # nothing tells when
                    await asyncio.sleep(0.01)
    rids = [each.body["rid"] for each in server.received if each.path == "/generate"]
    assert aborted() == [{"rid": rid} for rid in rids]


async def test_cancelled_weight_update_restores_the_version(tmp_path: Path) -> None:
    def paused() -> int:
        return [each.path for each in server.received].count("/pause_generation")

    async with engine_on_fake_server(tmp_path) as (engine, server):
        channel, before = await asyncio.to_thread(publish_model, tmp_path / "model", tmp_path, 1), paused()
        loading = asyncio.create_task(engine.load_weights(channel, 1))
        while paused() == before:  # noqa: ASYNC110  # nothing tells when
            await asyncio.sleep(0)
        loading.cancel()
        await asyncio.wait([loading])
        assert (await engine.generate(PLAIN)).weight_version == 0
    assert server.weight_version == "0"


@table(
    "behaviour, kind, message",
    [
        (FailThenOk(500), WorkerError, "/generate returned status 500"),
        (
            FailThenOk(400),
            ModelError,
            "SGLang refuses /generate: the fake engine's script lets this generation fail",
        ),
        (FailThenOk(429), ModelError, "SGLang refuses /generate: "),
        (FailThenOk(502), WorkerError, "/generate returned status 502"),
        (Disconnect(), WorkerError, "no response to /generate"),
        (Malformed(Flaw.BROKEN_JSON), WorkerError, "is not in SGLang's format"),
        (Malformed(Flaw.SHORT_LOG_PROBS), WorkerError, "is not in SGLang's format"),
        (Malformed(Flaw.TRUNCATED), WorkerError, "/generate"),
        (StaleVersion("default"), WorkerError, "is not in SGLang's format"),
    ],
)
@table("streamed", [False, True])
async def test_bad_answer_names_the_server_and_is_not_retried(
    tmp_path: Path, behaviour: Behaviour, kind: type[Exception], message: str, *, streamed: bool
) -> None:
    async with engine_on_fake_server(tmp_path, behaviour) as (engine, server):
        with pytest.raises(kind) as caught:
            await (read_stream(engine) if streamed else engine.generate(PLAIN))
        told = f"{engine.url} in {caught.value}"
    assert len(server.generations) == 1
    url, _, error = told.partition(" in ")
    assert url in error
    if not streamed:
        assert message in error


async def test_server_side_abort_is_a_response(tmp_path: Path) -> None:
    async with engine_on_fake_server(tmp_path, AbortMidway(2)) as (engine, _):
        output = await engine.generate(PLAIN)
    assert (len(output.tokens), output.finish) == (2, FinishReason.ABORT)
