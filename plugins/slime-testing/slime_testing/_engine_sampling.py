"""Checks of what an engine generates, ENG-003 to ENG-010 and ENG-018 to ENG-021; a part of `EngineContract`."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast
from unittest import SkipTest

from slime_core.errors import SlimeError
from slime_core.roles import FinishReason, GenerateOutput, SamplingParams
from slime_testing._engine_runs import GREEDY, SAMPLED, EngineRuns
from slime_testing._play import Play
from slime_testing.contract import check, require


class SamplingChecks(EngineRuns):
    """Tokens, log-probs, budgets, stops, seeds."""

    @check("ENG-003", needs=("ENG-001",))
    def test_every_token_has_a_log_prob(self) -> None:
        """`tokens` and `log_probs` have one length, ids are ints from 0 up, `finish` is a `FinishReason`."""

        async def use(play: Play) -> list[GenerateOutput]:
            return [await play.ask(SAMPLED), await play.ask(SAMPLED, prompt=1), await play.ask(GREEDY)]

        for output in self._run(use):
            count, log_probs = len(output.tokens), len(output.log_probs)
            require(count == log_probs, f"{count} tokens with {log_probs} log-probs")
            require(count > 0, "a response has no tokens")
            wrong = [each for each in cast(Sequence[object], output.tokens) if type(each) is not int or each < 0]
            require(not wrong, f"token ids must be ints from 0 up, found {wrong[:3]}")
            finish: object = output.finish
            require(isinstance(finish, FinishReason), f"finish is {finish!r}; expected a FinishReason")

    @check("ENG-004", needs=("ENG-001",))
    def test_log_probs_are_finite_and_not_above_zero(self) -> None:
        """A trainer divides by what the engine says. Give the log of the tempered probability, for greedy tokens too.

        NaN and infinity come of a log-prob that was taken after top-p or top-k had set it to zero.
        """
        truncated = SamplingParams(max_new_tokens=16, top_p=0.9, top_k=3)

        async def use(play: Play) -> list[GenerateOutput]:
            return [await play.ask(each) for each in (SAMPLED, truncated, GREEDY)]

        for output in self._run(use):
            wrong = [each for each in output.log_probs if not (math.isfinite(each) and each <= 1e-6)]
            require(not wrong, f"log-probs must be finite and at most 0, found {wrong[:3]}")

    @check("ENG-005", needs=("ENG-001",))
    def test_the_token_budget_is_kept(self) -> None:
        """At most `max_new_tokens` come back, the stop token included; LENGTH means that all of them were used."""
        budgets = (1, 2, 7)

        async def use(play: Play) -> list[GenerateOutput]:
            return [await play.ask(SamplingParams(budget)) for budget in budgets]

        for budget, output in zip(budgets, self._run(use), strict=True):
            count = len(output.tokens)
            require(count <= budget, f"{count} tokens with a budget of {budget}")
            used = output.finish is not FinishReason.LENGTH or count == budget
            require(used, f"finish is LENGTH after {count} of {budget} tokens")

    @check("ENG-006", needs=("ENG-001", "ENG-009"))
    def test_a_stop_token_ends_the_response(self) -> None:
        """One of `stop_token_ids` is the last token and the finish is STOP; ask the server for ids, not for text."""

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
        """Runs repeat and resume exactly. Pass the seed on; if the kernels vary, say `deterministic = False`."""
        self._needs_determinism()

        async def use(play: Play) -> list[list[int]]:
            return [list((await play.ask(SAMPLED, seed=7)).tokens) for _ in range(3)]

        draws = self._run(use)
        require(all(each == draws[0] for each in draws), f"three calls with one seed, different tokens: {draws}")

    @check("ENG-008", needs=("ENG-001",))
    def test_other_seeds_draw_other_tokens(self) -> None:
        """Samples of a group differ in their seed alone: were they all the same, there would be nothing to learn."""

        async def use(play: Play) -> list[tuple[int, ...]]:
            return [tuple((await play.ask(SAMPLED, seed=seed)).tokens) for seed in range(8)]

        draws = self._run(use)
        require(len(set(draws)) > 1, f"8 seeds at temperature 1 all drew {draws[0]}")

    @check("ENG-009", needs=("ENG-001",))
    def test_temperature_zero_is_greedy(self) -> None:
        """Evaluation asks for temperature 0: the likeliest token, whatever the seed."""
        self._needs_determinism()

        async def use(play: Play) -> list[list[int]]:
            return [list((await play.ask(GREEDY, seed=seed)).tokens) for seed in range(4)]

        draws = self._run(use)
        require(all(each == draws[0] for each in draws), f"4 seeds at temperature 0, different tokens: {draws}")

    @check("ENG-010", needs=("ENG-001", "ENG-007"))
    def test_requests_at_once_do_not_mix(self) -> None:
        """A rollout asks for hundreds at once: each gets its own answer, the one that it would get alone."""
        self._needs_determinism()
        asked = [(number % 2, seed) for seed in range(4) for number in range(2)]

        async def use(play: Play) -> tuple[list[GenerateOutput], list[GenerateOutput]]:
            together = await asyncio.gather(*(play.ask(SAMPLED, *each) for each in asked))
            return together, [await play.ask(SAMPLED, *each) for each in asked]

        pairs = zip(*self._run(use), strict=True)
        differing = sum(list(one.tokens) != list(other.tokens) for one, other in pairs)
        require(differing == 0, f"{differing} of {len(asked)} answers differ from those given one by one")

    @check("ENG-018", needs=("ENG-001", "ENG-004", "ENG-005"))
    def test_a_bias_moves_the_draw_and_not_its_log_prob(self) -> None:
        """`logit_bias` decides what is drawn; the log-prob stays that of the model, which a trainer computes, too.

        A setting that the engine cannot apply, this one or another, is refused by a `SlimeError` that names it.
        """
        bias, sampling = {self.prompts[0][0]: 100.0}, replace(GREEDY, ignore_eos=True)
        [forced] = self._answers([replace(sampling, logit_bias=bias)], "logit_bias")
        wrong = set(forced.tokens) - bias.keys()
        require(not wrong, f"logit_bias raises token {self.prompts[0][0]} by 100, and {sorted(wrong)} were drawn")
        sure = sum(each > -1e-4 for each in forced.log_probs)
        require(sure < len(forced.tokens), "the log-probs of biased draws are those of the bias, not of the model")

    @check("ENG-019", needs=("ENG-001", "ENG-005", "ENG-006"))
    def test_no_stop_token_comes_too_early(self) -> None:
        """None is drawn before `min_new_tokens`; with `ignore_eos` none ends the response."""
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
    def test_what_was_made_often_is_made_less(self) -> None:
        """`frequency_penalty` counts the tokens of the response, of each request its own."""
        one, other = self.prompts[0][0], self.prompts[0][1]
        bias = {one: 200.0, other: 170.0}
        plain = SamplingParams(60, temperature=0.0, ignore_eos=True, logit_bias=bias)
        free, held = self._answers([plain, replace(plain, frequency_penalty=2.0)], "frequency_penalty", "logit_bias")
        require(set(free.tokens) == {one}, f"token {one} has the highest logit, and {set(free.tokens)} were drawn")
        require(
            other in held.tokens, f"frequency_penalty is 2, and after {len(held.tokens)} times {one} there is no other"
        )

    @check("ENG-021", needs=("ENG-001", "ENG-009"))
    def test_min_p_leaves_the_likely(self) -> None:
        """At `min_p` of 1 only the likeliest token is left, whatever the temperature."""
        self._needs_determinism()
        likeliest = replace(SAMPLED, min_p=1.0)
        greedy, *drawn = self._answers([GREEDY, likeliest, likeliest], "min_p")
        wrong = [list(each.tokens) for each in drawn if list(each.tokens) != list(greedy.tokens)]
        require(not wrong, f"min_p is 1, and not the likeliest tokens were drawn: {wrong[:1]}")

    def _answers(self, asked: Sequence[SamplingParams], *settings: str) -> list[GenerateOutput]:
        """A fresh engine's answers, one by one, seeds from 0 up; of `otherwise`, or skipped, where it refuses one."""

        async def use(play: Play) -> list[GenerateOutput]:
            return [await play.ask(each, seed=seed) for seed, each in enumerate(asked)]

        try:
            return self._run(use)
        except SlimeError as error:
            refused = [each for each in settings if each in str(error)]
            if not refused:
                raise
            if not self.otherwise:
                raise SkipTest(f"it refuses {refused[0]}: {error}") from None
        return self._run_otherwise(use)

    def _needs_determinism(self) -> None:
        if not self.deterministic:
            raise SkipTest("the contract says deterministic = False")
