"""Extras of an answer in parts are those of the whole."""

from array import array
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from slime_core.roles import EngineExtras, Extra, FinishReason, GenerateChunk, GenerateOutput, GenerateRequest
from slime_core.roles import SamplingParams as Params
from slime_core.roles.generation import merge_spans
from slime_core.sample import PrefixCacheInfo, SpecInfo
from tests.tables import table

STRIDE = 3
"""Layers times top-k."""


def whole(prompt: int, versions: Sequence[int]) -> EngineExtras:
    """Extras of a prompt's answer, one token of each version; each column says where it is."""
    count = len(versions)
    kept = [[100 * place + each for each in range(place % 3)] for place in range(count)]
    return EngineExtras(
        versions=merge_spans([(1, version) for version in versions]),
        routed_experts=array("i", range((prompt + count - 1) * STRIDE)),
        top_p_token_ids=array("i", [each for ids in kept for each in ids]),
        top_p_token_offsets=array("i", [sum(map(len, kept[:place])) for place in range(count + 1)]),
        prompt_log_probs=[-float(place) for place in range(prompt - 1)],
    )


def piece(full: EngineExtras, prompt: int, begin: int, end: int, versions: Sequence[int]) -> EngineExtras:
    """Extras of the call that went on after `begin` tokens and made those up to `end`."""
    assert full.routed_experts is not None
    assert full.top_p_token_ids is not None
    assert full.top_p_token_offsets is not None
    offsets = full.top_p_token_offsets[begin : end + 1]
    return EngineExtras(
        versions=merge_spans([(1, version) for version in versions[begin:end]]),
        routed_experts=full.routed_experts[: (prompt + end - 1) * STRIDE],
        top_p_token_ids=full.top_p_token_ids[offsets[0] : offsets[-1]],
        top_p_token_offsets=array("i", [each - offsets[0] for each in offsets]),
        prompt_log_probs=[0.5] * (prompt + begin - 1) if begin else full.prompt_log_probs,
    )


@given(st.integers(1, 5), st.lists(st.integers(0, 3), min_size=1, max_size=12).map(sorted), st.data())
def test_the_parts_joined_are_the_whole(prompt: int, versions: list[int], data: st.DataObject) -> None:
    count = len(versions)
    cuts = sorted(data.draw(st.sets(st.integers(1, count - 1)))) if count > 1 else []
    places = list(zip([0, *cuts], [*cuts, count], strict=True))
    full = whole(prompt, versions)
    joined = EngineExtras.joined(
        [(piece(full, prompt, begin, end, versions), end - begin, versions[begin]) for begin, end in places]
    )
    expected = full if len(set(versions)) > 1 else replace(full, versions=())
    assert joined == expected


def test_counters_are_summed() -> None:
    first = EngineExtras(prefix_cache_info=PrefixCacheInfo(3, 10), spec_info=SpecInfo(1, 2, 3, 4), retractions=1)
    other = EngineExtras(prefix_cache_info=PrefixCacheInfo(8, 12), retractions=2)
    joined = EngineExtras.joined([(first, 2, 0), (None, 0, 0), (other, 2, 0)])
    assert joined == EngineExtras(
        prefix_cache_info=PrefixCacheInfo(11, 22), spec_info=SpecInfo(1, 2, 3, 4), retractions=3
    )


@table("column", ["routed_experts", "top_p_token_ids"])
def test_a_column_that_a_part_lacks_is_lacking_in_the_whole(column: str) -> None:
    full = whole(3, [0, 0, 0, 1])
    joined = EngineExtras.joined(
        [(piece(full, 3, 0, 2, [0, 0]), 2, 0), (replace(piece(full, 3, 2, 4, [0, 0, 0, 1]), **{column: None}), 2, 0)]
    )
    assert joined is not None
    assert getattr(joined, column) is None
    assert joined.versions == ((3, 0), (1, 1))


def test_what_was_wanted_is_lacking_or_not() -> None:
    extras = EngineExtras(top_p_token_ids=array("i"), top_p_token_offsets=array("i", [0, 0]))
    assert {extra for extra in Extra if extras.lacks(extra)} == set(Extra) - {Extra.TOP_P_TOKENS}


def test_chunks_of_several_versions_join_to_spans_and_the_oldest_version() -> None:
    chunks = [
        GenerateChunk([1, 2], [-1.0, -1.0], 4),
        GenerateChunk([3], [-1.0], 4),
        GenerateChunk([4], [-1.0], 5),
        GenerateChunk([], [], 5, FinishReason.STOP, extras=EngineExtras(retractions=1)),
    ]
    output = GenerateOutput.joined(chunks)
    assert (output.weight_version, output.versions) == (4, ((3, 4), (1, 5)))
    assert output.extras == EngineExtras(versions=((3, 4), (1, 5)), retractions=1)


def test_a_whole_answer_is_a_chunk() -> None:
    output = GenerateOutput([1, 2], [-1.0, -2.0], FinishReason.STOP, 3, 2, EngineExtras(retractions=1))
    assert GenerateOutput.joined([output.as_chunk]) == output
    assert output.versions == ((2, 3),)


def test_a_request_names_what_an_engine_does_not_heed() -> None:
    request = GenerateRequest(
        [1],
        Params(4),
        0,
        media={"image": ["a.png"]},
        session="talk",
        want=frozenset({Extra.ROUTED_EXPERTS, Extra.TOP_P_TOKENS}),
    )
    assert request.unsupported() == ["media", "routed_experts", "top_p_tokens"]
    assert request.unsupported("media", Extra.TOP_P_TOKENS) == ["routed_experts"]
    assert GenerateRequest([1], Params(4), 0, session="talk").unsupported() == []
