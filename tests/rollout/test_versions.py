"""Which weights made which token is known of any sample of a fan-out, and what older ones made is left out alone."""

import asyncio
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from slime_core.roles import EngineExtras, FinishReason, GenerateContext, GenerateOutput
from slime_core.rollout.runner import mask_stale, note_versions
from slime_core.sample import Sample, Status
from tests.rollout.bench import make_bench

PROMPT = [7, 7, 7]


def answer(*spans: tuple[int, int], first: int = 0, log_prob: float | None = None) -> GenerateOutput:
    """Tokens of these versions; each has a log-prob of its own, unless one is given."""
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


def masked(samples: list[Sample], *answers: GenerateOutput) -> list[list[int]]:
    note_versions(samples, answers)
    for sample in samples:
        mask_stale(sample)
        assert not list(sample.problems())
        assert not sample.remove_sample
    return [list(sample.loss_mask or ()) for sample in samples]


def test_each_sample_of_a_fan_out_loses_its_own_stale_tokens_alone() -> None:
    first, second, other = answer((4, 3)), answer((2, 3), (3, 4), first=4), answer((3, 3), first=9)
    whole = by_hand((first, [1] * 4), [9, 9], (second, [1] * 5))
    last_turn = by_hand((second, [1] * 5))
    finished_before = by_hand((other, [1] * 3))
    assert masked([whole, last_turn, finished_before], first, second, other) == [
        [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1],
        [0, 0, 1, 1, 1],
        [1, 1, 1],
    ]
    assert (whole.weight_versions, whole.weight_version_ends) == (["3", "3", "4"], [4, 8, 11])
    assert finished_before.weight_versions == ["3"]


def test_where_log_probs_are_alike_the_order_of_tokens_tells() -> None:
    output = answer((3, 3), (4, 4), log_prob=0.0)
    assert masked([by_hand((output, [1] * 7))], output) == [[0, 0, 0, 1, 1, 1, 1]]


def test_what_no_answer_has_is_taken_for_old() -> None:
    output = answer((2, 3), (2, 4))
    sample = by_hand((output, [1] * 4))
    sample.append_response_tokens(tokens=[55], log_probs=[-9.0], weight_version="4")
    assert masked([sample], output) == [[0, 0, 1, 1, 0]]


def test_where_tokens_are_alike_the_log_probs_tell() -> None:
    older, newer = answer((3, 3)), answer((3, 4), first=5)
    mixed = Sample(tokens=list(PROMPT))
    log_probs = [older.log_probs[0], *newer.log_probs[1:]]
    mixed.append_response_tokens(tokens=newer.tokens, log_probs=log_probs, weight_version="4")
    assert masked([mixed], older, newer) == [[0, 1, 1]]


def test_of_places_that_begin_alike_the_one_that_goes_on_as_the_sample_does_is_meant() -> None:
    older = GenerateOutput([100, 101], [-0.5, -0.25], FinishReason.STOP, 3)
    newer = GenerateOutput([100, 101], [-0.5, -0.125], FinishReason.STOP, 4)
    assert masked([by_hand((newer, [1, 1]))], older, newer) == [[1, 1]]


def test_a_sample_without_a_mask_is_left_as_it_is() -> None:
    sample = Sample(tokens=[*PROMPT, 1, 2], response_length=2, weight_versions=["3", "4"], weight_version_ends=[1, 2])
    mask_stale(sample)
    assert sample.loss_mask is None


@dataclass(frozen=True)
class Made:
    """One chain of answers, as a generator might keep it, and the truth about it."""

    answers: list[GenerateOutput]
    truth: list[int | None]
    mask: list[int]
    noted: Sample
    unnoted: Sample


@st.composite
def chains(draw: st.DrawFn) -> Made:
    """Turns with tools between them, weights that change within and between turns, and masks of the generator's."""
    noted, unnoted = Sample(tokens=list(PROMPT)), Sample(tokens=list(PROMPT))
    answers: list[GenerateOutput] = []
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
        output = answer(*merged, first=made)
        made += len(output.tokens)
        answers.append(output)
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


@given(made=chains(), begin=st.integers(0, 60), end=st.integers(0, 60))
def test_only_and_all_stale_tokens_are_left_out(made: Made, begin: int, end: int) -> None:
    newest = max(version for version in made.truth if version is not None)
    expected = [int(bit and version == newest) for bit, version in zip(made.mask, made.truth, strict=True)]
    fork = cut(made.unnoted, begin, end)
    found = masked([made.noted, made.unnoted, fork], *made.answers)
    assert found[0] == expected
    trained = [version for version, bit in zip(made.truth, made.mask, strict=True) if bit]
    if trained and max(trained) == newest:  # else nothing that is left says that there were newer ones
        assert found[1] == expected
    assert all(bit <= before for bit, before in zip(found[1], made.mask, strict=True))
    assert made.noted.oldest_weight_version in ({newest} if any(expected) else {min(filter_none(made.truth))})
    of_fork = [(version, bit) for version, bit in zip(made.truth, made.mask, strict=True)][begin : max(begin, end)]
    newest_there = max((version for version, _ in of_fork if version is not None), default=None)
    newest_trained = max((version for version, bit in of_fork if version is not None and bit), default=None)
    if newest_trained is not None and newest_trained == newest_there:
        assert any(found[2]), "a fork keeps what its newest weights made"
    for (version, bit), left in zip(of_fork, found[2], strict=True):
        assert left <= bit
        assert not left or version == newest_trained, "nothing older is trained on"


def filter_none(versions: list[int | None]) -> list[int]:
    return [version for version in versions if version is not None]


def cut(sample: Sample, begin: int, end: int) -> Sample:
    """A sibling that a generator made of a part of the response."""
    end = max(begin, end)
    response = list(sample.tokens)[len(PROMPT) :][begin:end]
    return replace(
        sample,
        tokens=[*PROMPT, *response],
        response_length=len(response),
        loss_mask=list(sample.loss_mask or ())[begin:end],
        rollout_log_probs=list(sample.rollout_log_probs or ())[begin:end],
    )


def test_in_a_rollout_forks_of_an_interrupted_call_keep_what_is_new() -> None:
    from tests.rollout.test_stream import LONG, DecodingEngine, run, stream

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
            versions = {version for begin, end, version in sample.stretches if any(sample.loss_mask[begin:end])}
            assert versions == {max(map(int, sample.weight_versions))}
            assert not sample.remove_sample
    asyncio.run(bench.scheduler.close())
