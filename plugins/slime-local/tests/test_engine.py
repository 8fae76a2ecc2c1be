"""The local engine in its worker processes: batching, weights by version, abort."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from local_engines import request, with_engine, worker_of

from slime_core.data import HfTokenizer
from slime_core.roles import FinishReason, GenerateOutput, GenerateRequest, SamplingParams, WeightChannel
from slime_local import engine_worker
from slime_local.engine import LocalEngine, deal
from slime_local.request_queue import Flags, Turn

pytestmark = pytest.mark.timeout(120)


def test_output_does_not_depend_on_batch_or_workers(tiny_model: Path, tmp_path: Path) -> None:
    prompts = [[5, 6, 7], [5, 6, 7], [9, 10], [30] * 20]
    asked = [request(prompt, seed) for seed, prompt in enumerate(prompts)]

    async def together(engine: LocalEngine, channel: WeightChannel) -> list[list[int]]:
        outputs = await asyncio.gather(*(engine.generate(each) for each in asked))
        assert all(0 < len(output.tokens) <= 12 for output in outputs)
        assert all(len(output.tokens) == len(output.log_probs) for output in outputs)
        return [list(output.tokens) for output in outputs]

    async def one_by_one(engine: LocalEngine, channel: WeightChannel) -> list[list[int]]:
        return [list((await engine.generate(each)).tokens) for each in reversed(asked)][::-1]

    found = with_engine(tiny_model, tmp_path, together)
    assert found == with_engine(tiny_model, tmp_path, one_by_one, workers=1)
    assert found == with_engine(tiny_model, tmp_path, together, workers=1, max_total_tokens=40)


def test_later_request_may_finish_first(tiny_model: Path, tmp_path: Path) -> None:
    async def use(engine: LocalEngine, channel: WeightChannel) -> None:
        free = SamplingParams(200, ignore_eos=True)
        ended = list[str]()

        async def ask(name: str, sampling: SamplingParams) -> None:
            output = await engine.generate(GenerateRequest([5, 6], sampling, 1))
            assert len(output.tokens) == sampling.max_new_tokens
            ended.append(name)

        running = asyncio.create_task(ask("long", free))
        await asyncio.sleep(0.01)
        await ask("short", replace(free, max_new_tokens=1))
        await running
        assert ended == ["short", "long"]

    with_engine(tiny_model, tmp_path, use, workers=1)


def test_weight_switch_waits_for_running_requests(tiny_model: Path, tmp_path: Path) -> None:
    async def use(engine: LocalEngine, channel: WeightChannel) -> None:
        free = SamplingParams(100, ignore_eos=True)
        running = [asyncio.create_task(engine.generate(GenerateRequest([5, seed], free, seed))) for seed in range(6)]
        await asyncio.sleep(0.01)
        switch = asyncio.create_task(engine.load_weights(channel, 1))
        await asyncio.sleep(0)
        held = [asyncio.create_task(engine.generate(GenerateRequest([5, seed], free, seed))) for seed in range(6)]
        before = await asyncio.gather(*running)
        await switch
        after = await asyncio.gather(*held)
        assert {output.weight_version for output in before} == {0}
        assert {output.weight_version for output in after} == {1}
        # All-zero weights make every token equally likely: no response mixes the versions.
        assert all(max(output.log_probs) - min(output.log_probs) > 0.1 for output in before)
        assert all(max(output.log_probs) - min(output.log_probs) < 1e-4 for output in after)

    with_engine(tiny_model, tmp_path, use)


def test_invalid_request_does_not_affect_others(tiny_model: Path, tmp_path: Path) -> None:
    async def use(engine: LocalEngine, channel: WeightChannel) -> None:
        asked = [
            GenerateRequest([], SamplingParams(4), 0),
            GenerateRequest([5], SamplingParams(4, logit_bias={10**6: 1.0}), 0),
            request([5], 0, tokens=0),
            request([5] * 256, 0),  # fills the positions
            request([5] * 250, 1, tokens=500),
            request([5], 0, tokens=4),
        ]
        calls = (engine.generate(each) for each in asked)
        empty, strange, *others = await asyncio.gather(*calls, return_exceptions=True)
        assert "no tokens" in str(empty)
        assert "logit_bias has token ids [1000000]" in str(strange)
        outputs = [each for each in others if isinstance(each, GenerateOutput)]
        assert [(len(each.tokens), each.finish) for each in outputs[:2]] == [(0, FinishReason.LENGTH)] * 2
        assert [1 <= len(each.tokens) <= most for each, most in zip(outputs[2:], (6, 4), strict=True)] == [True] * 2

    with_engine(tiny_model, tmp_path, use)


def test_stop_text_uses_the_model_tokenizer(tiny_model: Path, tmp_path: Path) -> None:
    tokenizer = HfTokenizer.load(tiny_model)

    async def use(engine: LocalEngine, channel: WeightChannel) -> None:
        free = SamplingParams(80, ignore_eos=True)
        whole = await engine.generate(GenerateRequest([5, 6], free, 3))
        text = tokenizer.decode(whole.tokens, skip_special_tokens=False)
        stop = next(text[at : at + 2] for at in range(10, len(text)) if "\ufffd" not in text[at : at + 2])
        cut = await engine.generate(GenerateRequest([5, 6], replace(free, stop=("never", stop)), 3))
        length = len(cut.tokens)
        assert (cut.finish, cut.matched) == (FinishReason.STOP, stop)
        assert list(cut.tokens) == list(whole.tokens)[:length]
        assert stop in tokenizer.decode(cut.tokens, skip_special_tokens=False)
        assert stop not in tokenizer.decode(cut.tokens[:-1], skip_special_tokens=False)

    with_engine(tiny_model, tmp_path, use)


def test_worker_drops_cancelled_requests(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_worker, "TURN_S", 0.0)
    flags = Flags.create(tmp_path / "flags", workers=1)
    worker = worker_of(tiny_model, tmp_path)
    worker.load_checkpoint()
    flags.set_news(0, True)
    assert not worker.decode(Turn({number: request([5, 6], number, tokens=60) for number in range(3)})).ended
    flags.set_news(0, False)
    ended = worker.decode(Turn({7: request([9], 7, tokens=50)}, frozenset({0, 2}))).ended
    while len(ended) < 2:
        ended |= worker.decode(Turn({})).ended
    assert ended.keys() == {1, 7}
    assert not worker.decode(Turn({})).ended
    flags.aborting = True
    [aborted] = worker.decode(Turn({8: request([9], 7)})).ended.values()
    assert isinstance(aborted, GenerateOutput)
    assert (list(aborted.tokens), aborted.finish) == ([], FinishReason.ABORT)


def test_requests_of_one_prompt_share_a_worker() -> None:
    async def main() -> list[list[tuple[int, ...]]]:
        from slime_local.request_queue import QueuedRequest

        loop = asyncio.get_running_loop()
        asked = [request([prompt], seed) for prompt in range(4) for seed in range(3)]
        waiting = [QueuedRequest(each, loop.create_future()) for each in asked]
        return [[tuple(each.request.prompt) for each in share] for share in deal(waiting, [0, 0])]

    shares = asyncio.run(main())
    assert [len(share) for share in shares] == [6, 6]
    assert not set(shares[0]) & set(shares[1])
