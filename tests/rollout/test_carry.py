"""What engines say of their answers comes into the samples, whatever generators make of these answers."""

import asyncio
from array import array
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from slime_core.roles import (
    EngineExtras,
    Extra,
    FinishReason,
    GenerateContext,
    GenerateOutput,
    GenerateRequest,
    SamplingParams,
)
from slime_core.rollout import EvalSet, evaluate
from slime_core.rollout.calls import Call, carry
from slime_core.sample import Group, GroupId, PrefixCacheInfo, Sample, SpecInfo
from tests.rollout.bench import ScriptedEngine, make_bench

STRIDE = 2
"""Layers times top-k."""


def answer(number: int, prompt: Sequence[int], new: Sequence[int]) -> GenerateOutput:
    """A call's answer: experts say which call and token they are of, and so do the top-p sets, of 0 to 2 ids."""
    seen = len(prompt) + len(new) - 1
    kept = [[1000 * number + place] * (place % 3) for place in range(len(new))]
    extras = EngineExtras(
        prefix_cache_info=PrefixCacheInfo(number, len(prompt)),
        spec_info=SpecInfo(1, 2, 3, len(new)),
        routed_experts=array("i", [1000 * number + place for place in range(seen) for _ in range(STRIDE)]),
        top_p_token_ids=array("i", [each for ids in kept for each in ids]),
        top_p_token_offsets=array("i", [sum(map(len, kept[:place])) for place in range(len(new) + 1)]),
    )
    return GenerateOutput(list(new), [-0.5] * len(new), FinishReason.STOP, 4, extras=extras)


def played(prompt: int, turns: Sequence[tuple[int, int]]) -> tuple[Sample, list[Call]]:
    """A sample of several turns, each so many new tokens after so many of a tool, and its calls."""
    sample, calls, token = Sample(tokens=list(range(prompt))), list[Call](), prompt
    for number, (tool, new) in enumerate(turns):
        if tool and number:
            sample.append_response_tokens(tokens=range(token, token + tool), trainable=False)
            token += tool
        made = answer(number, before := list(sample.tokens), range(token, token + new))
        token += new
        sample.append_response_tokens(tokens=made.tokens, log_probs=made.log_probs, weight_version="4")
        calls.append((before, made))
    return sample, calls


@given(
    st.integers(1, 4), st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=4), st.randoms()
)
def test_each_token_has_the_experts_of_the_first_call_that_saw_it_and_the_set_it_was_drawn_from(
    prompt: int, turns: list[tuple[int, int]], random: Random
) -> None:
    sample, calls = played(prompt, turns)
    random.shuffle(calls)
    carry(calls, [sample])
    assert sample.rollout_routed_experts is not None or len(sample.tokens) == 1
    ends, end = [], prompt
    for number, (tool, new) in enumerate(turns):
        end += new + (tool if number else 0)
        ends.append(end)
    expected = [
        1000 * next(number for number, end in enumerate(ends) if place < end - 1) + place
        for place in range(len(sample.tokens) - 1)
        for _ in range(STRIDE)
    ]
    assert list(sample.rollout_routed_experts or ()) == expected
    sets = []
    for number, (tool, new) in enumerate(turns):
        sets += [[]] * (tool if number else 0)
        sets += [[1000 * number + place] * (place % 3) for place in range(new)]
    if any(sets):
        ids, offsets = sample.rollout_top_p_token_ids, sample.rollout_top_p_token_offsets
        assert ids is not None
        assert offsets is not None
        found = [list(ids[offsets[place] : offsets[place + 1]]) for place in range(sample.response_length)]
        assert found == sets
        assert isinstance(ids, array)
        assert ids.typecode == "i"
    assert sample.spec_info.spec_accept_token_num == len(turns)
    assert sample.spec_info.completion_token_num == sum(new for _, new in turns)
    assert sample.prefix_cache_info.cached_tokens == sum(range(len(turns)))
    sample.freeze()
    assert not list(sample.problems())


def test_a_column_of_which_a_part_is_unknown_is_left_out() -> None:
    sample, calls = played(2, [(0, 3), (1, 3)])
    prompt, last = calls[1]
    carry([calls[0], (prompt, replace(last, extras=EngineExtras(retractions=1)))], [sample])
    assert sample.rollout_routed_experts is sample.rollout_top_p_token_ids is None
    assert sample.spec_info == SpecInfo(1, 2, 3, 3)


def test_tokens_after_the_last_call_leave_the_experts_out_and_need_no_top_p_set() -> None:
    sample, calls = played(2, [(0, 3)])
    sample.append_response_tokens(tokens=[77, 78], trainable=False)
    carry(calls, [sample])
    assert sample.rollout_routed_experts is None
    assert list(sample.rollout_top_p_token_offsets or ()) == [0, 0, 1, 3, 3, 3]


def test_a_call_goes_to_the_samples_that_hold_it_and_is_counted_once() -> None:
    one, calls = played(2, [(0, 3)])
    fork = Sample(tokens=[0, 1])
    fork.append_response_tokens(tokens=[2, 3, 4], log_probs=[-0.5] * 3, weight_version="4")
    tried = answer(7, [0, 1], [55, 56])
    other = Sample(tokens=[9])
    elsewhere = answer(1, [9], [5, 6])
    other.append_response_tokens(tokens=[5, 6], log_probs=[-0.5] * 2, weight_version="4")
    carry([*calls, ([0, 1], tried), ([9], elsewhere)], [one, fork, other])
    assert one.rollout_routed_experts == fork.rollout_routed_experts == array("i", [0, 0, 1, 1, 2, 2, 3, 3])
    assert other.rollout_routed_experts == array("i", [1000, 1000, 1001, 1001])
    assert one.spec_info.completion_token_num == 3 + 2, "what was thrown away cost something, too"
    assert fork.spec_info == SpecInfo()
    assert other.spec_info.completion_token_num == 2


def test_a_call_of_another_prompt_is_not_part_of_a_sample_that_got_the_same_answer() -> None:
    sample, calls = played(2, [(0, 3)])
    other = answer(7, [0, 9], [2, 3, 4])
    carry([([0, 9], other), *calls], [Sample(tokens=[0, 9]), sample])
    assert list(sample.rollout_routed_experts or ()) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sample.spec_info.completion_token_num == 3


def test_what_the_generator_filled_is_left() -> None:
    sample, calls = played(2, [(0, 3)])
    sample.rollout_routed_experts = [5] * 8
    sample.spec_info = SpecInfo(9, 9, 9, 9)
    carry(calls, [sample])
    assert sample.rollout_routed_experts == [5] * 8
    assert sample.spec_info == SpecInfo(9, 9, 9, 9)
    assert sample.prefix_cache_info == PrefixCacheInfo(0, 2)


def test_a_sample_has_them_whichever_generator_ran() -> None:
    async def answered(request: GenerateRequest) -> GenerateOutput:
        return answer(0, request.prompt, [5, 2])

    async def two_turns(sample: Sample, ctx: GenerateContext) -> list[Sample]:
        sample.tokens = ctx.tokenizer.encode(str(sample.prompt))
        for _ in range(2):
            out = await ctx.generate(sample.tokens, ctx.sampling)
            sample.append_response_tokens(
                tokens=out.tokens, log_probs=out.log_probs, weight_version=str(out.weight_version)
            )
        sample.status = type(sample.status).COMPLETED
        return [sample]

    for generator, length in ((None, 3), (two_turns, 5)):
        bench = make_bench(engine=ScriptedEngine(answered), generator=generator)
        groups = asyncio.run(bench.scheduler.collect(0, 2)).kept
        samples = [sample for group in groups for sample in group.samples]
        assert len(samples) == 4
        assert {len(sample.rollout_routed_experts) for sample in samples} == {(length - 1) * STRIDE}
        assert {sample.prefix_cache_info.total_prompt_tokens for sample in samples} == {1 if length == 3 else 4}


def test_training_asks_for_what_it_wants_and_evaluation_for_nothing() -> None:
    async def answered(request: GenerateRequest) -> GenerateOutput:
        return answer(0, request.prompt, [5, 2])

    want = frozenset({Extra.ROUTED_EXPERTS})
    bench = make_bench(engine=ScriptedEngine(answered), want=want)
    asyncio.run(bench.scheduler.collect(0, 1))
    assert {request.want for request in bench.engine.requests} == {want}
    bench.engine.requests.clear()
    drawn = Group(GroupId("eval", 0, 0, 0), [Sample(group_index=0, index=0, rollout_id=0, prompt="0")])
    asyncio.run(evaluate(bench.scheduler, [EvalSet("tests", [drawn], SamplingParams(4))], rollout_id=0))
    assert {request.want for request in bench.engine.requests} == {frozenset()}
