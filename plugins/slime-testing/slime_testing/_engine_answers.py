"""Checks of `EngineContract` for an engine's outputs: sampling, streams, extras."""

import asyncio
import inspect
import math
import tempfile
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import cast
from unittest import SkipTest

from slime_core.catalog.checks import check_extras, check_output
from slime_core.errors import SlimeError
from slime_core.roles import (
    EngineExtras,
    Extra,
    FinishReason,
    GenerateChunk,
    GenerateOutput,
    GenerateRequest,
    SamplingParams,
    StreamsTokens,
)
from slime_testing._engine_runs import GREEDY, ONE, SAME_LOG_PROB, SAMPLED, Client, EngineRuns, Load
from slime_testing.calling import SETTLE_S
from slime_testing.contract import check, require


class SamplingChecks(EngineRuns):
    """Checks of tokens, log-probs, budgets, stop tokens and seeds."""

    @check("ENG-003", needs=("ENG-001",))
    def test_every_token_has_a_log_prob(self) -> None:
        """Return as many `log_probs` as `tokens`. Token ids are ints, 0 or more; `finish` is a `FinishReason`."""

        async def use(client: Client) -> list[GenerateOutput]:
            return [
                await client.request(SAMPLED),
                await client.request(SAMPLED, prompt=1),
                await client.request(GREEDY),
            ]

        ample = GenerateRequest(self.prompts[0], SamplingParams(10**6), 0)
        for output in self._run(use):
            check_output(output, plugin=self.registered.plugin, request=ample)
            require(len(output.tokens) > 0, "an output has no tokens; expected at least one")
            wrong = [each for each in cast(Sequence[object], output.tokens) if type(each) is not int or each < 0]
            require(not wrong, f"an output has token ids {wrong[:3]}; expected ints, 0 or more")

    @check("ENG-004", needs=("ENG-001",))
    def test_log_probs_are_finite_and_not_above_zero(self) -> None:
        """Return the log of the probability after temperature, also for greedy tokens. Importance ratios divide by it.

        Compute log-probs before top-p and top-k set probabilities to zero: otherwise they become infinite or NaN.
        """
        truncated = SamplingParams(max_new_tokens=16, top_p=0.9, top_k=3)
        for output in self._answers([SAMPLED, truncated, GREEDY]):
            wrong = [each for each in output.log_probs if not (math.isfinite(each) and each <= 1e-6)]
            require(not wrong, f"an output has log-probs {wrong[:3]}; expected finite values, 0 or less")

    @check("ENG-005", needs=("ENG-001",))
    def test_the_response_stays_within_the_token_budget(self) -> None:
        """Return at most `max_new_tokens` tokens, including the stop token. LENGTH means that all were generated."""
        budgets = (1, 2, 7)
        for budget, output in zip(budgets, self._answers(list(map(SamplingParams, budgets))), strict=True):
            count = len(output.tokens)
            require(count <= budget, f"{count} tokens exceed max_new_tokens = {budget}")
            used = output.finish is not FinishReason.LENGTH or count == budget
            require(used, f"finish is LENGTH after {count} of {budget} tokens; expected another reason")

    @check("ENG-006", needs=("ENG-001", "ENG-009"))
    def test_a_stop_token_ends_the_response(self) -> None:
        """End the output at the first of `stop_token_ids`, with finish STOP. The server must stop at ids, not text."""

        async def use(client: Client) -> tuple[list[int], int, GenerateOutput]:
            free = list((await client.request(GREEDY)).tokens)
            stop = free[len(free) // 2]
            return free, stop, await client.request(replace(GREEDY, stop_token_ids=frozenset({stop})))

        free, stop, output = self._run(use)
        tokens = list(output.tokens)
        require(stop not in tokens[:-1], f"tokens {tokens} continue after stop token {stop}")
        if self.deterministic:
            expected = free[: free.index(stop) + 1]
            require(tokens == expected, f"with stop token {stop}, greedy tokens are {tokens}; expected {expected}")
        if stop in tokens:
            finish = output.finish
            require(finish is FinishReason.STOP, f"finish is {finish} after a stop token; expected STOP")

    @check("ENG-007", needs=("ENG-001",))
    def test_the_same_seed_draws_the_same_tokens(self) -> None:
        """Use the request's seed, so that a run repeats exactly. If kernels vary, set `deterministic = False`."""
        self._needs_determinism()

        async def use(client: Client) -> list[list[int]]:
            return [list((await client.request(SAMPLED, seed=7)).tokens) for _ in range(3)]

        draws = self._run(use)
        same = all(each == draws[0] for each in draws)
        require(same, f"three requests with one seed got different tokens: {draws}")

    @check("ENG-008", needs=("ENG-001",))
    def test_different_seeds_draw_different_tokens(self) -> None:
        """Samples of a group differ only by their seed. If all were equal, there would be nothing to learn."""
        draws = [tuple(each.tokens) for each in self._answers([SAMPLED] * 8)]
        require(len(set(draws)) > 1, f"8 seeds at temperature 1 all got tokens {draws[0]}")

    @check("ENG-009", needs=("ENG-001",))
    def test_temperature_zero_is_greedy(self) -> None:
        """At temperature 0, which evaluation uses, return the most likely token for every seed."""
        self._needs_determinism()
        draws = [list(each.tokens) for each in self._answers([GREEDY] * 4)]
        require(all(each == draws[0] for each in draws), f"4 seeds at temperature 0 got different tokens: {draws}")

    @check("ENG-010", needs=("ENG-001", "ENG-007"))
    def test_concurrent_requests_do_not_mix(self) -> None:
        """A rollout sends hundreds of requests concurrently. Each must get the same tokens as alone."""
        self._needs_determinism()
        requests = [(number % 2, seed) for seed in range(4) for number in range(2)]

        async def use(client: Client) -> tuple[list[GenerateOutput], list[GenerateOutput]]:
            concurrent = await asyncio.gather(*(client.request(SAMPLED, *each) for each in requests))
            return concurrent, [await client.request(SAMPLED, *each) for each in requests]

        pairs = zip(*self._run(use), strict=True)
        differing = sum(list(one.tokens) != list(other.tokens) for one, other in pairs)
        require(differing == 0, f"{differing} of {len(requests)} concurrent requests got other tokens than alone")

    @check("ENG-018", needs=("ENG-001", "ENG-004", "ENG-005"))
    def test_a_logit_bias_does_not_change_log_probs(self) -> None:
        """`logit_bias` changes which tokens are drawn, but not their log-probs: the trainer computes them without it.

        If the engine does not support a setting, such as this one, raise a `SlimeError` that names it.
        """
        bias, sampling = {self.prompts[0][0]: 100.0}, replace(GREEDY, ignore_eos=True)
        [forced] = self._answers([replace(sampling, logit_bias=bias)], "logit_bias")
        wrong = set(forced.tokens) - bias.keys()
        require(not wrong, f"logit_bias is 100 for token {self.prompts[0][0]}, but tokens {sorted(wrong)} were drawn")
        sure = sum(each > -1e-4 for each in forced.log_probs)
        require(sure < len(forced.tokens), "log-probs include logit_bias; expected log-probs of the model alone")

    @check("ENG-019", needs=("ENG-001", "ENG-005", "ENG-006"))
    def test_min_new_tokens_and_ignore_eos_are_respected(self) -> None:
        """Draw no stop token before `min_new_tokens`. With `ignore_eos`, continue after stop tokens."""
        self._needs_determinism()
        [free] = self._answers([GREEDY])
        stops = frozenset(free.tokens[:3])
        stopping = replace(GREEDY, stop_token_ids=stops)
        [late] = self._answers([replace(stopping, min_new_tokens=5)], "min_new_tokens")
        early = [token for token in late.tokens[:5] if token in stops]
        require(not early, f"the first 5 tokens contain stop tokens {early}, with min_new_tokens = 5")
        require(len(late.tokens) >= 5, f"an output has {len(late.tokens)} tokens, with min_new_tokens = 5")
        [whole] = self._answers([replace(stopping, ignore_eos=True)], "ignore_eos")
        budget = GREEDY.max_new_tokens
        require(len(whole.tokens) == budget, f"{len(whole.tokens)} tokens with ignore_eos; expected {budget}")

    @check("ENG-020", needs=("ENG-001", "ENG-018"))
    def test_the_frequency_penalty_reduces_repetition(self) -> None:
        """`frequency_penalty` lowers the logits of tokens by their counts in the response, separately per request."""
        one, other = self.prompts[0][0], self.prompts[0][1]
        bias = {one: 200.0, other: 170.0}
        plain = SamplingParams(60, temperature=0.0, ignore_eos=True, logit_bias=bias)
        requests = [plain, replace(plain, frequency_penalty=2.0)]
        free, penalized = self._answers(requests, "frequency_penalty", "logit_bias")
        require(set(free.tokens) == {one}, f"token {one} has the highest logit, but {set(free.tokens)} were drawn")
        count = len(penalized.tokens)
        require(other in penalized.tokens, f"token {one} was repeated {count} times with frequency_penalty = 2")

    @check("ENG-021", needs=("ENG-001", "ENG-009"))
    def test_min_p_keeps_only_likely_tokens(self) -> None:
        """With `min_p = 1`, draw only the most likely token, at every temperature."""
        self._needs_determinism()
        likeliest = replace(SAMPLED, min_p=1.0)
        greedy, *drawn = self._answers([GREEDY, likeliest, likeliest], "min_p")
        wrong = [list(each.tokens) for each in drawn if list(each.tokens) != list(greedy.tokens)]
        require(not wrong, f"tokens {wrong[:1]} were drawn with min_p = 1; expected greedy {list(greedy.tokens)}")

    def _answers(self, requests: Sequence[SamplingParams], *settings: str) -> list[GenerateOutput]:
        async def use(client: Client) -> list[GenerateOutput]:
            return [await client.request(each, seed=seed) for seed, each in enumerate(requests)]

        try:
            return self._run(use)
        except SlimeError as error:
            refused = [each for each in settings if each in str(error)]
            if not refused:
                raise
            raise SkipTest(f"it does not support {refused[0]}: {error}") from None

    def _needs_determinism(self) -> None:
        if not self.deterministic:
            raise SkipTest("the contract sets deterministic = False")


class StreamingChecks(EngineRuns):
    """Checks of streamed outputs."""

    @check("ENG-022", needs=("ENG-001", "ENG-007"))
    def test_streamed_chunks_add_up_to_the_response(self) -> None:
        """`stream` is optional. Its chunks, joined, equal the output of `generate`; only the last one has a finish.

        Each chunk has one log-prob per token and the loaded version, and each but the last has at least one token. A
        fast engine may return the whole output in one chunk.
        """
        self._needs_streaming()
        requests = (SAMPLED, GREEDY, SamplingParams(self.busy_tokens))

        async def use(client: Client) -> list[tuple[list[GenerateChunk], GenerateOutput]]:
            return [(await client.stream(each), await client.request(each)) for each in requests]

        for chunks, whole in self._run(use):
            require(chunks, "stream() yielded no chunk")
            finishes = [chunk.finish for chunk in chunks]
            require(finishes[-1] is not None, "the last chunk has no finish")
            require(not any(finishes[:-1]), f"chunks have finishes {finishes}; expected one for the last chunk only")
            sizes = [len(chunk.tokens) for chunk in chunks]
            require(all(sizes[:-1]), f"chunks have {sizes} tokens; only the last chunk may be empty")
            log_probs = [len(chunk.log_probs) for chunk in chunks]
            require(sizes == log_probs, f"chunks have {sizes} tokens and {log_probs} log-probs; expected equal numbers")
            versions = {chunk.weight_version for chunk in chunks}
            require(versions == {0}, f"chunks have weight_version {sorted(versions)} with version 0 loaded; expected 0")
            if self.deterministic:
                _require_same(GenerateOutput.joined(chunks), whole)

    @check("ENG-023", needs=("ENG-001", "ENG-014", "ENG-022"))
    def test_a_closed_stream_ends_its_request(self) -> None:
        """End the request when the iterator is closed (`aclose`) or its reader cancelled. Clean up in a `finally`."""
        self._needs_streaming()
        sampling = SamplingParams(self.busy_tokens)

        async def use(client: Client) -> tuple[int, int, int]:
            await client.request(ONE)
            before = asyncio.all_tasks()
            async with aclosing(client.open_stream(sampling)) as chunks:
                await client.with_timeout(anext(chunks), "the first chunk of stream()")
            streams = await client.keep_streaming(self.busy_tokens)
            return await self._cancelled(client, streams, before)

        streams, tasks, running = self._run(use)
        require(streams == 0, f"{streams} streams still run {SETTLE_S:g} s after they were cancelled")
        require(tasks == 0, f"{tasks} tasks still run {SETTLE_S:g} s after their streams were cancelled")
        require(running == 0, f"the engine still runs {running} requests {SETTLE_S:g} s after their streams ended")

    def _needs_streaming(self) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            setup = self.make_setup(Path(scratch))
            engine = self._build(setup)
            asyncio.run(setup.launcher.close())
        if not isinstance(engine, StreamsTokens):
            raise SkipTest("it has no stream(), which is optional")
        awaited = inspect.iscoroutinefunction(engine.stream)
        require(not awaited, "stream() returns its iterator only after `await`; write `async def` with `yield`")


def _require_same(joined: GenerateOutput, whole: GenerateOutput) -> None:
    tokens, expected = list(joined.tokens), list(whole.tokens)
    require(tokens == expected, f"joined chunks have tokens {tokens}; generate() returned {expected}")
    gap = max((abs(one - other) for one, other in zip(joined.log_probs, whole.log_probs, strict=True)), default=0.0)
    require(gap < SAME_LOG_PROB, f"log-probs of chunks differ from log-probs of generate() by up to {gap:g}")
    finishes = [(each.finish, each.matched) for each in (joined, whole)]
    require(finishes[0] == finishes[1], f"the last chunk has finish {finishes[0]}; generate() returned {finishes[1]}")


NUCLEUS = replace(GREEDY, temperature=1.0, top_p=0.9)
TRIES = 8
"""Most seeds to try until an output has a token."""
NO_SUCH_IMAGE = "no-such-thing"
"""Name of an image that no engine has."""


class ExtrasChecks(EngineRuns):
    """Checks of extras and media."""

    @check("ENG-024", needs=("ENG-001",))
    def test_it_returns_declared_extras_and_rejects_others(self) -> None:
        """On request, return each `Extra` of `EngineSpec.gives`. Reject a request for another one by its name.

        Extras have one entry per token of the output, in the same order: the trainer reads them by position.
        """
        gives = sorted(self.spec.gives, key=lambda extra: extra.value)
        wants = [frozenset({extra}) for extra in Extra] + ([frozenset(gives)] if gives else [])
        requests = [
            GenerateRequest(self.prompts[number], NUCLEUS, 3, want=want) for want in wants for number in range(2)
        ]

        async def use(client: Client) -> list[GenerateOutput | Exception]:
            return [await _answer(client, request) for request in requests]

        stride: set[int] = set()
        for request, answer in zip(requests, self._run(use), strict=True):
            undeclared = sorted(extra.value for extra in request.want - self.spec.gives)
            if isinstance(answer, Exception):
                _require_refusal(answer, undeclared)
                continue
            names = ", ".join(undeclared)
            require(not undeclared, f"a request for {names} got an output, but EngineSpec.gives does not list it")
            check_extras("an output", answer, request)
            _require_valid_extras(answer.extras or EngineExtras(), answer)
            if answer.extras is not None and answer.extras.routed_experts is not None:
                stride.add(len(answer.extras.routed_experts) // (len(request.prompt) + len(answer.tokens) - 1))
        require(len(stride) < 2, f"routed_experts has {sorted(stride)} entries per token; expected one number")

    @check("ENG-025", needs=("ENG-001", "ENG-011", "ENG-012"))
    def test_weight_versions_are_reported_per_token(self) -> None:
        """If weights change during a request, `extras.versions` lists spans that cover all its tokens, oldest first.

        `weight_version` is then the oldest version. An engine that finishes its requests first needs no spans.
        """

        async def use(client: Client, load: Load) -> list[GenerateOutput | BaseException]:
            running = await client.keep_busy(self.busy_tokens)
            await load(1)
            return [*await client.results(running), await client.request(GREEDY)]

        request = GenerateRequest(self.prompts[0], SamplingParams(self.busy_tokens), 0)
        *outputs, last = [end for end in self._run_with_weights(use) if isinstance(end, GenerateOutput)]
        for output in outputs:
            check_extras("an output", output, request)
            unknown = {version for _, version in output.versions} - {0, 1}
            require(not unknown, f"an output has tokens of versions {sorted(unknown)}; only 0 and 1 were loaded")
        spans = last.versions
        only = {version for _, version in spans} == {1}
        require(only, f"an output has versions {spans} after version 1 was loaded; expected version 1 only")

    @check("ENG-026", needs=("ENG-001",))
    def test_unsupported_media_is_rejected_by_name(self) -> None:
        """If the engine cannot load a request's image, raise a `SlimeError` that contains "media" or the image's name.

        Without the image, the output would answer another question. `GenerateRequest.unsupported` helps.
        """
        plain = GenerateRequest(self.prompts[0], GREEDY, 0)
        requests = [replace(plain, media={"image": [f"{NO_SUCH_IMAGE}.png"]}), plain]

        async def use(client: Client) -> list[GenerateOutput | Exception]:
            return [await _answer(client, request) for request in requests]

        rejected, after = self._run(use)
        require(isinstance(rejected, Exception), "a request with an image that does not exist got an output")
        assert isinstance(rejected, Exception)
        _require_refusal(rejected, ["media", NO_SUCH_IMAGE])
        require(isinstance(after, GenerateOutput), f"the request after a rejected one ended with {after!r}")

    @check("ENG-029", needs=("ENG-001", "ENG-003", "ENG-024"))
    def test_a_scored_text_has_the_log_probs_of_its_generation(self) -> None:
        """With `max_new_tokens = 0` and `PROMPT_LOG_PROBS`, generate nothing, and return log-probs of the prompt.

        They equal the log-probs that the same weights gave when they generated the text. Teacher models need this.
        """
        if Extra.PROMPT_LOG_PROBS not in self.spec.gives:
            raise SkipTest("EngineSpec.gives does not list prompt_log_probs")

        async def use(client: Client) -> tuple[GenerateOutput, GenerateOutput]:
            for seed in range(5, 5 + TRIES):
                generated = await client.request(SAMPLED, seed=seed)
                if len(generated.tokens):
                    break
            else:
                raise SkipTest(f"none of {TRIES} outputs has a token")
            text = [*self.prompts[0], *generated.tokens]
            scoring = GenerateRequest(text, SamplingParams(0), 0, want=frozenset({Extra.PROMPT_LOG_PROBS}))
            return generated, await client.send(scoring)

        generated, scored = self._run(use)
        require(not len(scored.tokens), f"{len(scored.tokens)} tokens were generated with max_new_tokens = 0")
        log_probs = scored.extras.prompt_log_probs if scored.extras is not None else None
        require(log_probs is not None, "a request with max_new_tokens = 0 got no prompt_log_probs")
        assert log_probs is not None
        check_extras("an output", scored, GenerateRequest([*self.prompts[0], *generated.tokens], SamplingParams(0), 0))
        pairs = zip(log_probs[-len(generated.tokens) :], generated.log_probs, strict=True)
        gap = max(abs(one - other) for one, other in pairs)
        differ = f"prompt_log_probs differ by up to {gap:.4f} nats from the log-probs of the generation"
        require(gap < SAME_LOG_PROB, differ)


async def _answer(client: Client, request: GenerateRequest) -> GenerateOutput | Exception:
    try:
        return await client.send(request)
    except Exception as error:
        return error


def _require_refusal(error: Exception, names: Sequence[str]) -> None:
    require(names, f"a request for extras that EngineSpec.gives lists raised {error!r}")
    named = isinstance(error, SlimeError) and any(name in str(error) for name in names)
    require(named, f"expected a SlimeError that contains {' or '.join(names)}, got {error!r}")


def _require_valid_extras(extras: EngineExtras, output: GenerateOutput) -> None:
    ids, offsets = extras.top_p_token_ids, extras.top_p_token_offsets
    if ids is not None and offsets is not None:
        places = zip(output.tokens, pairwise(offsets), strict=True)
        lost = [token for token, (begin, end) in places if token not in ids[begin:end]]
        require(not lost, f"top_p_token_ids lacks the drawn tokens {lost[:3]}")
    for log_probs in (extras.prompt_log_probs, output.log_probs):
        wrong = [each for each in log_probs or () if each > 1e-6]
        require(not wrong, f"log-probs are {wrong[:3]}; expected 0 or less")
