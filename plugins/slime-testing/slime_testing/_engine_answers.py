"""Checks of `EngineContract` for an engine's answers: sampling, streams, extras."""

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
from slime_testing._engine_runs import GREEDY, ONE, SAME_LOG_PROB, SAMPLED, EngineRuns, Load, Play
from slime_testing.calling import SETTLE_S
from slime_testing.contract import check, require


class SamplingChecks(EngineRuns):
    """Tokens, log-probs, budgets, stops, seeds."""

    @check("ENG-003", needs=("ENG-001",))
    def test_every_token_has_a_log_prob(self) -> None:
        """Return as many `log_probs` as `tokens`. Ids are ints from 0 up; `finish` is a `FinishReason`."""

        async def use(play: Play) -> list[GenerateOutput]:
            return [await play.ask(SAMPLED), await play.ask(SAMPLED, prompt=1), await play.ask(GREEDY)]

        ample = GenerateRequest(self.prompts[0], SamplingParams(10**6), 0)
        for output in self._run(use):
            check_output(output, plugin=self.registered.plugin, request=ample)
            require(len(output.tokens) > 0, "a response has no tokens")
            wrong = [each for each in cast(Sequence[object], output.tokens) if type(each) is not int or each < 0]
            require(not wrong, f"token ids must be ints from 0 up, found {wrong[:3]}")

    @check("ENG-004", needs=("ENG-001",))
    def test_log_probs_are_finite_and_not_above_zero(self) -> None:
        """The trainer divides by these values. Return the log of the tempered probability, for greedy tokens too.

        NaN or infinity appears if the log-prob is computed after top-p or top-k has set it to zero.
        """
        truncated = SamplingParams(max_new_tokens=16, top_p=0.9, top_k=3)
        for output in self._answers([SAMPLED, truncated, GREEDY]):
            wrong = [each for each in output.log_probs if not (math.isfinite(each) and each <= 1e-6)]
            require(not wrong, f"log-probs must be finite and at most 0, found {wrong[:3]}")

    @check("ENG-005", needs=("ENG-001",))
    def test_the_response_stays_within_the_token_budget(self) -> None:
        """Return at most `max_new_tokens`, including the stop token. LENGTH means that all of them were used."""
        budgets = (1, 2, 7)
        for budget, output in zip(budgets, self._answers(list(map(SamplingParams, budgets))), strict=True):
            count = len(output.tokens)
            require(count <= budget, f"{count} tokens with a budget of {budget}")
            used = output.finish is not FinishReason.LENGTH or count == budget
            require(used, f"finish is LENGTH after {count} of {budget} tokens")

    @check("ENG-006", needs=("ENG-001", "ENG-009"))
    def test_a_stop_token_ends_the_response(self) -> None:
        """End with one of `stop_token_ids` and finish STOP. Ask the server to stop at ids, not at text."""

        async def use(play: Play) -> tuple[list[int], int, GenerateOutput]:
            free = list((await play.ask(GREEDY)).tokens)
            stop = free[len(free) // 2]
            return free, stop, await play.ask(replace(GREEDY, stop_token_ids=frozenset({stop})))

        free, stop, output = self._run(use)
        tokens = list(output.tokens)
        require(stop not in tokens[:-1], f"stop token {stop} is not the last of {tokens}")
        if self.deterministic:
            expected = free[: free.index(stop) + 1]
            require(tokens == expected, f"greedy tokens {free} became {tokens} with stop token {stop}")
        if stop in tokens:
            require(output.finish is FinishReason.STOP, f"the last token is a stop token, finish is {output.finish}")

    @check("ENG-007", needs=("ENG-001",))
    def test_the_same_seed_draws_the_same_tokens(self) -> None:
        """A run must repeat and resume exactly: pass the seed on. If the kernels vary, set `deterministic = False`."""
        self._needs_determinism()

        async def use(play: Play) -> list[list[int]]:
            return [list((await play.ask(SAMPLED, seed=7)).tokens) for _ in range(3)]

        draws = self._run(use)
        require(all(each == draws[0] for each in draws), f"three calls with one seed, different tokens: {draws}")

    @check("ENG-008", needs=("ENG-001",))
    def test_different_seeds_draw_different_tokens(self) -> None:
        """Samples of a group differ only in their seed. If all were equal, there would be nothing to learn."""
        draws = [tuple(each.tokens) for each in self._answers([SAMPLED] * 8)]
        require(len(set(draws)) > 1, f"8 seeds at temperature 1 all drew {draws[0]}")

    @check("ENG-009", needs=("ENG-001",))
    def test_temperature_zero_is_greedy(self) -> None:
        """Evaluation uses temperature 0: return the likeliest token for every seed."""
        self._needs_determinism()
        draws = [list(each.tokens) for each in self._answers([GREEDY] * 4)]
        require(all(each == draws[0] for each in draws), f"4 seeds at temperature 0, different tokens: {draws}")

    @check("ENG-010", needs=("ENG-001", "ENG-007"))
    def test_concurrent_requests_do_not_mix(self) -> None:
        """A rollout sends hundreds of requests at once. Each must get the answer that it would get alone."""
        self._needs_determinism()
        asked = [(number % 2, seed) for seed in range(4) for number in range(2)]

        async def use(play: Play) -> tuple[list[GenerateOutput], list[GenerateOutput]]:
            together = await asyncio.gather(*(play.ask(SAMPLED, *each) for each in asked))
            return together, [await play.ask(SAMPLED, *each) for each in asked]

        pairs = zip(*self._run(use), strict=True)
        differing = sum(list(one.tokens) != list(other.tokens) for one, other in pairs)
        require(differing == 0, f"{differing} of {len(asked)} answers differ from those given one by one")

    @check("ENG-018", needs=("ENG-001", "ENG-004", "ENG-005"))
    def test_a_logit_bias_does_not_change_log_probs(self) -> None:
        """`logit_bias` changes which tokens are drawn, but not their log-probs: the trainer computes the model's own.

        Refuse a setting that the engine cannot apply, this one or another, with a `SlimeError` that names it.
        """
        bias, sampling = {self.prompts[0][0]: 100.0}, replace(GREEDY, ignore_eos=True)
        [forced] = self._answers([replace(sampling, logit_bias=bias)], "logit_bias")
        wrong = set(forced.tokens) - bias.keys()
        require(not wrong, f"logit_bias raises token {self.prompts[0][0]} by 100, and {sorted(wrong)} were drawn")
        sure = sum(each > -1e-4 for each in forced.log_probs)
        require(sure < len(forced.tokens), "the log-probs of biased draws are those of the bias, not of the model")

    @check("ENG-019", needs=("ENG-001", "ENG-005", "ENG-006"))
    def test_min_new_tokens_and_ignore_eos_are_respected(self) -> None:
        """Draw no stop token before `min_new_tokens`. With `ignore_eos`, no stop token ends the response."""
        self._needs_determinism()
        [free] = self._answers([GREEDY])
        stops = frozenset(free.tokens[:3])
        stopping = replace(GREEDY, stop_token_ids=stops)
        [late] = self._answers([replace(stopping, min_new_tokens=5)], "min_new_tokens")
        early = [token for token in late.tokens[:5] if token in stops]
        require(not early, f"stop tokens {early} among the first 5, min_new_tokens is 5")
        require(len(late.tokens) >= 5, f"{len(late.tokens)} tokens, min_new_tokens is 5")
        [going_on] = self._answers([replace(stopping, ignore_eos=True)], "ignore_eos")
        budget = GREEDY.max_new_tokens
        require(len(going_on.tokens) == budget, f"{len(going_on.tokens)} of {budget} tokens with ignore_eos")

    @check("ENG-020", needs=("ENG-001", "ENG-018"))
    def test_the_frequency_penalty_reduces_repetition(self) -> None:
        """`frequency_penalty` counts the tokens of the response, separately for each request."""
        one, other = self.prompts[0][0], self.prompts[0][1]
        bias = {one: 200.0, other: 170.0}
        plain = SamplingParams(60, temperature=0.0, ignore_eos=True, logit_bias=bias)
        free, held = self._answers([plain, replace(plain, frequency_penalty=2.0)], "frequency_penalty", "logit_bias")
        require(set(free.tokens) == {one}, f"token {one} has the highest logit, and {set(free.tokens)} were drawn")
        require(
            other in held.tokens, f"frequency_penalty is 2, and after {len(held.tokens)} times {one} there is no other"
        )

    @check("ENG-021", needs=("ENG-001", "ENG-009"))
    def test_min_p_keeps_only_likely_tokens(self) -> None:
        """With a `min_p` of 1 only the likeliest token remains, at every temperature."""
        self._needs_determinism()
        likeliest = replace(SAMPLED, min_p=1.0)
        greedy, *drawn = self._answers([GREEDY, likeliest, likeliest], "min_p")
        wrong = [list(each.tokens) for each in drawn if list(each.tokens) != list(greedy.tokens)]
        require(not wrong, f"min_p is 1, and not the likeliest tokens were drawn: {wrong[:1]}")

    def _answers(self, asked: Sequence[SamplingParams], *settings: str) -> list[GenerateOutput]:
        async def use(play: Play) -> list[GenerateOutput]:
            return [await play.ask(each, seed=seed) for seed, each in enumerate(asked)]

        try:
            return self._run(use)
        except SlimeError as error:
            refused = [each for each in settings if each in str(error)]
            if not refused:
                raise
            raise SkipTest(f"it refuses {refused[0]}: {error}") from None

    def _needs_determinism(self) -> None:
        if not self.deterministic:
            raise SkipTest("the contract says deterministic = False")


class StreamingChecks(EngineRuns):
    """Streamed responses."""

    @check("ENG-022", needs=("ENG-001", "ENG-007"))
    def test_streamed_chunks_add_up_to_the_response(self) -> None:
        """`stream` is optional. Its chunks, joined, are the answer of `generate`; only the last one has a finish.

        Each chunk but the last has at least one token; each has a log-prob per token, and the loaded version. One
        chunk may hold the whole response: readers want tokens early, and a fast engine has all at once.
        """
        self._needs_streaming()
        asked = (SAMPLED, GREEDY, SamplingParams(self.busy_tokens))

        async def use(play: Play) -> list[tuple[list[GenerateChunk], GenerateOutput]]:
            return [(await play.stream(each), await play.ask(each)) for each in asked]

        for chunks, whole in self._run(use):
            require(chunks, "stream() gave no chunk")
            finishes = [chunk.finish for chunk in chunks]
            require(finishes[-1] is not None, "the last chunk has no finish")
            require(not any(finishes[:-1]), f"chunks before the last have a finish: {finishes}")
            sizes = [len(chunk.tokens) for chunk in chunks]
            require(all(sizes[:-1]), f"chunks before the last are empty; they have {sizes} tokens")
            log_probs = [len(chunk.log_probs) for chunk in chunks]
            require(sizes == log_probs, f"the chunks have {sizes} tokens and {log_probs} log-probs")
            versions = {chunk.weight_version for chunk in chunks}
            require(versions == {0}, f"version 0 is loaded, the chunks say {sorted(versions)}")
            if self.deterministic:
                _require_same(GenerateOutput.joined(chunks), whole)

    @check("ENG-023", needs=("ENG-001", "ENG-014", "ENG-022"))
    def test_a_closed_stream_ends_its_request(self) -> None:
        """Drop the request on `aclose` of the iterator, or when its reader is cancelled: clean up in a `finally`."""
        self._needs_streaming()
        sampling = SamplingParams(self.busy_tokens)

        async def use(play: Play) -> tuple[int, int, int]:
            await play.ask(ONE)
            before = asyncio.all_tasks()
            async with aclosing(play.open_stream(sampling)) as chunks:
                await play.limited(anext(chunks), "the first chunk of stream()")
            asked = await play.keep_streaming(self.busy_tokens)
            return await self._cancelled(play, asked, before)

        going_on, tasks, running = self._run(use)
        require(going_on == 0, f"{going_on} streams go on {SETTLE_S:g} s after they were cancelled")
        require(tasks == 0, f"{tasks} tasks are left {SETTLE_S:g} s after their streams were")
        require(running == 0, f"{running} requests are running {SETTLE_S:g} s after their streams were left")

    def _needs_streaming(self) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            setup = self.make_setup(Path(scratch))
            engine = self._build(setup)
            asyncio.run(setup.launcher.close())
        if not isinstance(engine, StreamsTokens):
            raise SkipTest("it has no stream(), which is optional")
        awaited = inspect.iscoroutinefunction(engine.stream)
        require(not awaited, "stream() must be awaited for its iterator; write `async def` with `yield`")


def _require_same(joined: GenerateOutput, whole: GenerateOutput) -> None:
    tokens, expected = list(joined.tokens), list(whole.tokens)
    require(tokens == expected, f"the chunks hold tokens {tokens}, generate() answers {expected}")
    apart = max((abs(one - other) for one, other in zip(joined.log_probs, whole.log_probs, strict=True)), default=0.0)
    require(apart < SAME_LOG_PROB, f"log-probs of the chunks are up to {apart:g} from those that generate() answers")
    ends = [(each.finish, each.matched) for each in (joined, whole)]
    require(ends[0] == ends[1], f"the last chunk says {ends[0]}, generate() answers {ends[1]}")


NUCLEUS = replace(GREEDY, temperature=1.0, top_p=0.9)
TRIES = 8
"""Number of seeds tried to get a token."""
NOWHERE = "no-such-thing"
"""Name of a picture that no engine has."""


class ExtrasChecks(EngineRuns):
    """Checks of extras and media."""

    @check("ENG-024", needs=("ENG-001",))
    def test_it_returns_declared_extras_and_rejects_others(self) -> None:
        """Return each `Extra` of `EngineSpec.gives` in its shape on request. Refuse any other one by its name.

        A trainer reads extras per token of this answer: one entry for each, in the same order.
        """
        given = sorted(self.spec.gives, key=lambda extra: extra.value)
        wants = [frozenset({extra}) for extra in Extra] + ([frozenset(given)] if given else [])
        asked = [GenerateRequest(self.prompts[number], NUCLEUS, 3, want=want) for want in wants for number in range(2)]

        async def use(play: Play) -> list[GenerateOutput | Exception]:
            return [await _answer(play, request) for request in asked]

        stride: set[int] = set()
        for request, answer in zip(asked, self._run(use), strict=True):
            if isinstance(answer, Exception):
                _require_refusal(answer, sorted(extra.value for extra in request.want - self.spec.gives))
                continue
            ignored = sorted(extra.value for extra in request.want - self.spec.gives)
            require(
                not ignored, f"the spec does not give {', '.join(ignored)}, and a request that wants it is answered"
            )
            check_extras("an answer", answer, request)
            _require_sense(answer.extras or EngineExtras(), answer)
            if answer.extras is not None and answer.extras.routed_experts is not None:
                stride.add(len(answer.extras.routed_experts) // (len(request.prompt) + len(answer.tokens) - 1))
        require(len(stride) < 2, f"routed_experts has {sorted(stride)} entries a token; expected one number for all")

    @check("ENG-025", needs=("ENG-001", "ENG-011", "ENG-012"))
    def test_weight_versions_are_reported_per_token(self) -> None:
        """If new weights arrive during an answer, `extras.versions` covers all its tokens, oldest weights first.

        `weight_version` is then the oldest. An engine that ends running requests before it switches needs no spans.
        """

        async def use(play: Play, load: Load) -> list[GenerateOutput | BaseException]:
            running = await play.keep_busy(self.busy_tokens)
            await load(1)
            return [*await play.ends(running), await play.ask(GREEDY)]

        request = GenerateRequest(self.prompts[0], SamplingParams(self.busy_tokens), 0)
        *outputs, last = [end for end in self._run_with_weights(use) if isinstance(end, GenerateOutput)]
        for output in outputs:
            check_extras("an answer", output, request)
            strange = {version for _, version in output.versions} - {0, 1}
            require(not strange, f"versions 0 and 1 were loaded, an answer has tokens of {sorted(strange)}")
        spans = last.versions
        require({version for _, version in spans} == {1}, f"version 1 was loaded, a later answer has {spans}")

    @check("ENG-026", needs=("ENG-001",))
    def test_unsupported_media_is_rejected_by_name(self) -> None:
        """Refuse a picture that the engine does not have: without it, the answer would be to another question.

        Raise a `SlimeError` that contains "media" or names what is missing; `GenerateRequest.unsupported` helps.
        """
        plain = GenerateRequest(self.prompts[0], GREEDY, 0)
        asked = [replace(plain, media={"image": [f"{NOWHERE}.png"]}), plain]

        async def use(play: Play) -> list[GenerateOutput | Exception]:
            return [await _answer(play, request) for request in asked]

        picture, after = self._run(use)
        require(isinstance(picture, Exception), "a request with media that it does not have was answered")
        assert isinstance(picture, Exception)
        _require_refusal(picture, ["media", NOWHERE])
        require(isinstance(after, GenerateOutput), f"a request after the one that it refused ended with {after!r}")

    @check("ENG-029", needs=("ENG-001", "ENG-003", "ENG-024"))
    def test_a_scored_text_has_the_log_probs_of_its_generation(self) -> None:
        """With `max_new_tokens = 0` and `PROMPT_LOG_PROBS`, generate nothing and return the log-probs of the text.

        They equal the log-probs that the same weights gave when they generated the text. Teachers are queried so.
        """
        if Extra.PROMPT_LOG_PROBS not in self.spec.gives:
            raise SkipTest("the spec does not give prompt_log_probs")

        async def use(play: Play) -> tuple[GenerateOutput, GenerateOutput]:
            for seed in range(5, 5 + TRIES):
                made = await play.ask(SAMPLED, seed=seed)
                if len(made.tokens):
                    break
            else:
                raise SkipTest(f"all of {TRIES} answers ended without a token")
            text = [*self.prompts[0], *made.tokens]
            asked = GenerateRequest(text, SamplingParams(0), 0, want=frozenset({Extra.PROMPT_LOG_PROBS}))
            return made, await play.answer(asked)

        made, scored = self._run(use)
        require(not len(scored.tokens), f"max_new_tokens is 0, and {len(scored.tokens)} tokens were made")
        told = scored.extras.prompt_log_probs if scored.extras is not None else None
        require(told is not None, "a text to be scored, with max_new_tokens = 0, got no prompt_log_probs")
        assert told is not None
        check_extras("an answer", scored, GenerateRequest([*self.prompts[0], *made.tokens], SamplingParams(0), 0))
        pairs = zip(told[-len(made.tokens) :], made.log_probs, strict=True)
        apart = max(abs(one - other) for one, other in pairs)
        require(
            apart < SAME_LOG_PROB,
            f"log-probs of a text are up to {apart:.4f} nats from those that its tokens had when they were made",
        )


async def _answer(play: Play, request: GenerateRequest) -> GenerateOutput | Exception:
    try:
        return await play.answer(request)
    except Exception as error:
        return error


def _require_refusal(error: Exception, names: Sequence[str]) -> None:
    require(names, f"a request that wants what the spec gives raised {error!r}")
    named = isinstance(error, SlimeError) and any(name in str(error) for name in names)
    require(named, f"the error is not a SlimeError that says {' or '.join(names)}: {error!r}")


def _require_sense(extras: EngineExtras, output: GenerateOutput) -> None:
    ids, offsets = extras.top_p_token_ids, extras.top_p_token_offsets
    if ids is not None and offsets is not None:
        places = zip(output.tokens, pairwise(offsets), strict=True)
        lost = [token for token, (begin, end) in places if token not in ids[begin:end]]
        require(not lost, f"tokens {lost[:3]} are not among those that top-p kept for them")
    for log_probs in (extras.prompt_log_probs, output.log_probs):
        wrong = [each for each in log_probs or () if each > 1e-6]
        require(not wrong, f"log-probs must be at most 0, found {wrong[:3]}")
