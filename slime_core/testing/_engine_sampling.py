"""Checks of what an engine generates, ENG-003 to ENG-010; a part of `EngineContract`."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast
from unittest import SkipTest

from slime_core.roles import FinishReason, GenerateOutput, SamplingParams
from slime_core.testing._engine_runs import GREEDY, SAMPLED, EngineRuns
from slime_core.testing._play import Play
from slime_core.testing.contract import check, require


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

    def _needs_determinism(self) -> None:
        if not self.deterministic:
            raise SkipTest("the contract says deterministic = False")
