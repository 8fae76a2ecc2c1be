"""What a sample has of its calls: extras of the answers, and which weights made which token."""

import asyncio
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from slime_core.rollout.calls import Call, attach_engine_extras
from slime_core.rollout.runner import mask_stale, note_versions
from slime_core.sample import Group, GroupId, PrefixCacheInfo, Sample, SpecInfo, Status
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


def call_of(prompt: Sequence[int], output: GenerateOutput) -> Call:
    return Call(len(prompt), output, tuple(prompt))


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
        calls.append(call_of(before, made))
    return sample, calls


@given(
    st.integers(1, 4), st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=4), st.randoms()
)
def test_each_token_has_the_experts_of_the_first_call_that_saw_it_and_the_set_it_was_drawn_from(
    prompt: int, turns: list[tuple[int, int]], random: Random
) -> None:
    sample, calls = played(prompt, turns)
    random.shuffle(calls)
    attach_engine_extras(calls, [sample])
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
    last = replace(calls[1].output, extras=EngineExtras(retractions=1))
    attach_engine_extras([calls[0], calls[1]._replace(output=last)], [sample])
    assert sample.rollout_routed_experts is sample.rollout_top_p_token_ids is None
    assert sample.spec_info == SpecInfo(1, 2, 3, 3)


def test_tokens_after_the_last_call_leave_the_experts_out_and_need_no_top_p_set() -> None:
    sample, calls = played(2, [(0, 3)])
    sample.append_response_tokens(tokens=[77, 78], trainable=False)
    attach_engine_extras(calls, [sample])
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
    attach_engine_extras([*calls, call_of([0, 1], tried), call_of([9], elsewhere)], [one, fork, other])
    assert one.rollout_routed_experts == fork.rollout_routed_experts == array("i", [0, 0, 1, 1, 2, 2, 3, 3])
    assert other.rollout_routed_experts == array("i", [1000, 1000, 1001, 1001])
    assert one.spec_info.completion_token_num == 3 + 2, "what was thrown away cost something, too"
    assert fork.spec_info == SpecInfo()
    assert other.spec_info.completion_token_num == 2


def test_a_call_of_another_prompt_is_not_part_of_a_sample_that_got_the_same_answer() -> None:
    sample, calls = played(2, [(0, 3)])
    other = answer(7, [0, 9], [2, 3, 4])
    attach_engine_extras([call_of([0, 9], other), *calls], [Sample(tokens=[0, 9]), sample])
    assert list(sample.rollout_routed_experts or ()) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert sample.spec_info.completion_token_num == 3


def test_what_the_generator_filled_is_left() -> None:
    sample, calls = played(2, [(0, 3)])
    sample.rollout_routed_experts = [5] * 8
    sample.spec_info = SpecInfo(9, 9, 9, 9)
    attach_engine_extras(calls, [sample])
    assert sample.rollout_routed_experts == [5] * 8
    assert sample.spec_info == SpecInfo(9, 9, 9, 9)
    assert sample.prefix_cache_info == PrefixCacheInfo(0, 2)


def test_training_asks_for_what_it_wants_and_evaluation_for_nothing() -> None:
    async def answered(request: GenerateRequest) -> GenerateOutput:
        return answer(0, request.prompt, [5, 2])

    want = frozenset({Extra.ROUTED_EXPERTS})
    bench = make_bench(engine=ScriptedEngine(answered), wanted_extras=want)
    [group] = asyncio.run(bench.scheduler.collect(0, 1)).kept
    assert {len(sample.rollout_routed_experts) for sample in group.samples} == {(3 - 1) * STRIDE}
    assert {sample.prefix_cache_info.total_prompt_tokens for sample in group.samples} == {1}
    assert {request.want for request in bench.engine.requests} == {want}
    bench.engine.requests.clear()
    drawn = Group(GroupId("eval", 0, 0, 0), [Sample(group_index=0, index=0, rollout_id=0, prompt="0")])
    asyncio.run(evaluate(bench.scheduler, [EvalSet("tests", [drawn], SamplingParams(4))], rollout_id=0))
    assert {request.want for request in bench.engine.requests} == {frozenset()}


# Which weights made which token is known of any sample of a fan-out, and what older ones made is left out alone.

PROMPT = [7, 7, 7]


def spans_of(*spans: tuple[int, int], first: int = 0, log_prob: float | None = None) -> GenerateOutput:
    """Tokens of these versions; each with its own log-prob, unless one is given."""
    count = sum(number for number, _ in spans)
    log_probs = [-(first + place + 1) / 1024 if log_prob is None else log_prob for place in range(count)]
    extras = EngineExtras(versions=spans) if len(spans) > 1 else None
    tokens = [100 + (first + place) % 5 for place in range(count)]
    return GenerateOutput(tokens, log_probs, FinishReason.STOP, min(version for _, version in spans), extras=extras)


def by_hand(*parts: tuple[GenerateOutput, list[int]] | list[int]) -> Sample:
    """A sample of answers, each with a loss mask of the generator's own, and of a tool's tokens."""
    sample = Sample(tokens=list(PROMPT))
    for part in parts:
        if isinstance(part, list):
            sample.append_response_tokens(tokens=part, trainable=False)
            continue
        output, mask = part
        sample.append_response_tokens(
            tokens=output.tokens, log_probs=output.log_probs, weight_version=str(output.weight_version)
        )
        sample.loss_mask = [*(sample.loss_mask or ())[: -len(mask)], *mask]
        kept = [value if bit else 0.0 for value, bit in zip(output.log_probs, mask, strict=True)]
        sample.rollout_log_probs = [*(sample.rollout_log_probs or ())[: -len(mask)], *kept]
    return sample


def masked(samples: list[Sample], *answers: tuple[int, GenerateOutput]) -> list[list[int]]:
    """Masks of the samples, after answers to prompts of such lengths."""
    note_versions(samples, [Call(*each) for each in answers])
    for sample in samples:
        mask_stale(sample)
        assert not list(sample.problems())
        assert not sample.remove_sample
    return [list(sample.loss_mask or ()) for sample in samples]


def test_each_sample_of_a_fan_out_loses_its_own_stale_tokens_alone() -> None:
    first, second, other = (
        spans_of((4, 3)),
        spans_of((2, 3), (3, 4), first=4),
        spans_of((3, 3), first=9),
    )
    whole = by_hand((first, [1] * 4), [9, 9], (second, [1] * 5))
    last_turn = by_hand((second, [1] * 5))
    last_turn.tokens = [*whole.tokens[:9], *second.tokens]  # what came before is its prompt
    finished_before = by_hand((other, [1] * 3))
    assert masked([whole, last_turn, finished_before], (3, first), (9, second), (3, other)) == [
        [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1],
        [0, 0, 1, 1, 1],
        [1, 1, 1],
    ]
    assert (whole.weight_versions, whole.weight_version_ends) == (["3", "3", "4"], [4, 8, 11])
    assert finished_before.weight_versions == ["3"]


def test_what_no_answer_has_at_its_place_is_taken_for_old() -> None:
    output = spans_of((2, 3), (2, 4))
    sample = by_hand((output, [1] * 4))
    sample.append_response_tokens(tokens=[55], log_probs=[-9.0], weight_version="4")
    moved, cut = by_hand([9], (output, [1] * 4)), by_hand((output, [1] * 4))
    cut.tokens, cut.response_length = [*PROMPT, *output.tokens[:3]], 3
    cut.loss_mask, cut.rollout_log_probs = [1, 1, 1], list(output.log_probs[:3])
    assert masked([sample, moved, cut], (3, output)) == [[0, 0, 1, 1, 0], [0, 1, 1, 1, 1], [0, 0, 1]]
    assert moved.weight_versions == ["3"], "all of it counts as the oldest"


def test_of_answers_at_one_place_the_one_with_the_sample_s_log_probs_is_meant() -> None:
    older = GenerateOutput([100, 101], [-0.5, -0.25], FinishReason.STOP, 3)
    newer = GenerateOutput([100, 101], [-0.75, -0.125], FinishReason.STOP, 4)
    assert masked([by_hand((newer, [1, 1]))], (3, older), (3, newer)) == [[1, 1]]


def test_a_sample_without_a_mask_is_left_as_it_is() -> None:
    sample = Sample(tokens=[*PROMPT, 1, 2], response_length=2, weight_versions=["3", "4"], weight_version_ends=[1, 2])
    mask_stale(sample)
    assert sample.loss_mask is None


@dataclass(frozen=True)
class Made:
    """One chain of answers, as a generator might keep it, and the truth about it."""

    answers: list[tuple[int, GenerateOutput]]
    truth: list[int | None]
    mask: list[int]
    noted: Sample
    unnoted: Sample


@st.composite
def chains(draw: st.DrawFn) -> Made:
    """Turns with tools between them, weights that change within and between turns, and masks of the generator's."""
    noted, unnoted = Sample(tokens=list(PROMPT)), Sample(tokens=list(PROMPT))
    answers: list[tuple[int, GenerateOutput]] = []
    truth: list[int | None] = []
    mask: list[int] = []
    version, made = draw(st.integers(0, 3)), 0
    for _ in range(draw(st.integers(1, 4))):
        spans = []
        for count in draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)):
            spans.append((count, version))
            version += draw(st.integers(0, 1))
        merged = [spans[0]]
        for count, each in spans[1:]:
            merged[-1:] = [(merged[-1][0] + count, each)] if merged[-1][1] == each else [merged[-1], (count, each)]
        output = spans_of(*merged, first=made)
        made += len(output.tokens)
        answers.append((len(noted.tokens), output))
        truth += [each for count, each in merged for _ in range(count)]
        keeps = draw(st.lists(st.integers(0, 1), min_size=len(output.tokens), max_size=len(output.tokens)))
        mask += keeps
        noted.append_response_tokens(output=output)
        unnoted.append_response_tokens(
            tokens=output.tokens, log_probs=output.log_probs, weight_version=str(output.weight_version)
        )
        tool = draw(st.lists(st.integers(0, 4), max_size=3))
        for sample in (noted, unnoted):
            sample.append_response_tokens(tokens=tool, trainable=False)
        truth += [None] * len(tool)
        mask += [0] * len(tool)
    for sample in (noted, unnoted):
        sample.loss_mask = list(mask)
        log_probs = zip(sample.rollout_log_probs or (), mask, strict=True)
        sample.rollout_log_probs = [value if bit else 0.0 for value, bit in log_probs]
    return Made(answers, truth, mask, noted, unnoted)


@given(made=chains())
def test_only_and_all_stale_tokens_are_left_out(made: Made) -> None:
    newest = max(version for version in made.truth if version is not None)
    expected = [int(bit and version == newest) for bit, version in zip(made.mask, made.truth, strict=True)]
    found = masked([made.noted, made.unnoted], *made.answers)
    assert found[0] == expected
    trained = [version for version, bit in zip(made.truth, made.mask, strict=True) if bit]
    if trained and max(trained) == newest:  # else nothing that is left says that there were newer ones
        assert found[1] == expected
    assert all(bit <= before for bit, before in zip(found[1], made.mask, strict=True))
    oldest = min(version for version in made.truth if version is not None)
    assert made.noted.oldest_weight_version == (newest if any(expected) else oldest)


def test_in_a_rollout_forks_of_an_interrupted_call_keep_what_is_new() -> None:
    from tests.rollout.test_continuous import LONG, DecodingEngine, run, stream

    async def forks(sample: Sample, ctx: GenerateContext) -> list[Sample]:
        output = await ctx.generate([1000 + int(str(sample.prompt))], turn="whole")
        sample.tokens = [1000]
        sample.append_response_tokens(output=output)
        sample.status = Status.COMPLETED
        half = len(output.tokens) // 2
        part = replace(sample, loss_mask=[0] * half + [1] * (len(output.tokens) - half))
        part.rollout_log_probs = [0.0] * half + list(output.log_probs)[half:]
        return [part, sample]

    bench = make_bench(
        engine=DecodingEngine(whole_budget=True),
        make=stream(8),
        generator=forks,
        max_staleness=2,
        partial_rollout=True,
        mask_offpolicy_in_partial_rollout=True,
        sampling=LONG,
    )
    seen = run(bench, 8, ticks=3)
    pairs = [group.samples for step in seen.steps for group in step]
    mixed = [pair for pair in pairs if len(set(pair[1].weight_versions)) > 1]
    assert mixed, "some calls were interrupted"
    for samples in pairs:
        for sample in samples:
            versions = {version for begin, end, version in sample.version_spans if any(sample.loss_mask[begin:end])}
            assert versions == {max(map(int, sample.weight_versions))}
            assert not sample.remove_sample
    asyncio.run(bench.scheduler.close())
