"""What is read back is what was written, in every bit."""

import asyncio
import string
import struct
from array import array
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime_core.errors import RunFolderError
from slime_core.roles import Draw
from slime_core.sample import Group, GroupId, PrefixCacheInfo, Sample, SpecInfo, Status
from slime_core.secrets import Redactor
from slime_core.telemetry import GeneratedGroups
from slime_view.samples.columns import OTHERS, OWN, Entry, pack
from slime_view.samples.shard import Shard
from slime_view.samples.store import SampleStore
from tests.tables import table


def written(tmp_path: Path, generated: GeneratedGroups, draw: Draw | None = None) -> Shard:
    """A shard of these groups, read anew."""

    async def write() -> None:
        with SampleStore(tmp_path) as store:
            await store.write(3, generated, draw or Draw([], []))
            await store.flush()

    asyncio.run(write())
    return Shard(tmp_path / "rollout_000003.parquet")


texts = st.text(max_size=8)  # surrogates without a partner included
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
tables = st.dictionaries(texts, json_values, max_size=2)
counts = st.none() | st.integers(0, 2**40)
ids = st.integers(0, 2**31 - 1)
float32 = st.floats(width=32, allow_nan=False)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    prompt, length = draw(st.integers(0, 4)), draw(st.integers(0, 9))

    def exactly(of: st.SearchStrategy[float]) -> st.SearchStrategy[list[float] | None]:
        return st.none() | st.lists(of, min_size=length, max_size=length)

    return Sample(
        group_index=draw(counts),
        index=draw(counts),
        rollout_id=draw(counts),
        source=draw(texts),
        prompt=draw(texts | st.lists(st.dictionaries(texts, json_values, max_size=2), max_size=2)),
        tokens=draw(st.lists(ids, min_size=prompt + length, max_size=prompt + length)),
        response=draw(texts),
        response_length=length,
        label=draw(json_values),
        reward=draw(
            st.none()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.dictionaries(texts, st.floats(-9, 9), min_size=1, max_size=2)
        ),
        loss_mask=draw(exactly(st.integers(0, 1))),  # type: ignore[arg-type]
        weight_versions=draw(st.lists(st.text(string.digits, min_size=1, max_size=3), max_size=2)),
        rollout_log_probs=draw(exactly(float32)),
        teacher_log_probs=draw(exactly(float32)),
        rollout_top_p_token_ids=draw(st.none() | st.lists(ids, max_size=5)),
        rollout_top_p_token_offsets=draw(st.none() | st.lists(ids, max_size=5)),
        rollout_routed_experts=draw(st.none() | st.lists(ids, max_size=5)),
        remove_sample=draw(st.booleans()),
        status=draw(st.sampled_from(Status)),
        metadata=draw(tables),
        train_metadata=draw(st.none() | tables),
        multimodal_inputs=draw(st.none() | tables),
        apply_chat_template_kwargs=draw(tables),
        generate_function_path=draw(st.none() | texts),
        session_id=draw(st.none() | texts),
        non_generation_time=draw(st.floats(0, 10)),
        spec_info=SpecInfo(*draw(st.tuples(*[st.integers(0, 9)] * 4))),
        prefix_cache_info=PrefixCacheInfo(*draw(st.tuples(*[st.integers(0, 9)] * 2))),
    )


def bits(sample: Sample) -> dict[str, object]:
    """Every field, numbers as their bytes: -0.0 is not 0.0 here."""
    held = {item.name: getattr(sample, item.name) for item in fields(sample)}
    held |= {name: (each.typecode, each.tobytes()) for name, each in held.items() if isinstance(each, array)}
    if isinstance(sample.reward, float):
        held["reward"] = struct.pack("d", sample.reward)
    return held


@settings(max_examples=60)
@given(several=st.lists(st.lists(samples(), min_size=1, max_size=3), max_size=3))
def test_any_sample_comes_back_in_every_bit(
    tmp_path_factory: pytest.TempPathFactory, several: list[list[Sample]]
) -> None:
    groups = [Group(GroupId("a:b", 1, row, row), those) for row, those in enumerate(several)]
    for group in groups:
        group.freeze()
    shard = written(tmp_path_factory.mktemp("samples"), GeneratedGroups(groups, [], {}))
    back = shard.groups()
    assert [group.id for group in back.kept] == [group.id for group in groups]
    assert [[bits(each) for each in group.samples] for group in back.kept] == [
        [bits(each) for each in group.samples] for group in groups
    ]
    flat = [(str(group.id), bits(each)) for group in groups for each in group.samples]
    assert [((one := shard.entry(row)).group, bits(one.sample)) for row in range(len(shard))] == flat


@table("values", [array("q", [2**40]), [2**40], [1.5], [None]])
def test_a_number_that_does_not_fit_is_refused(values: list[int]) -> None:
    with pytest.raises((OverflowError, TypeError)):
        pack([Entry("train", None, None, Sample(tokens=values))], 0)


def test_every_field_of_a_sample_has_a_place() -> None:
    assert sorted((*OWN, *OTHERS)) == sorted(each.name for each in fields(Sample))


def group_of(row: int, *responses: str) -> Group:
    those = [Sample(prompt=f"prompt {row}", response=each, reward=0.5, source="train") for each in responses]
    made = Group(GroupId("train", 0, row, row), those)
    made.freeze()
    return made


def test_dropped_groups_are_kept_apart_with_their_reasons(tmp_path: Path) -> None:
    kept, dropped = group_of(0, "a", "b"), group_of(1, "c")
    shard = written(tmp_path, GeneratedGroups([kept], [dropped], {dropped.id: "zero_std_0.0"}))
    back = shard.groups()
    assert (back.kept, back.dropped, back.reasons) == ([kept], [dropped], {dropped.id: "zero_std_0.0"})
    assert [(row.index, row.drop_reason) for row in shard.rows()] == [(0, None), (1, None), (0, "zero_std_0.0")]
    assert shard.group_ids() == {str(kept.id), str(dropped.id)}
    assert shard.groups({str(dropped.id)}).kept == []


def test_a_sample_is_found_by_its_row_in_any_part_of_a_file(tmp_path: Path) -> None:
    shard = written(tmp_path, GeneratedGroups([group_of(row, "a", "b") for row in range(600)], [], {}))
    assert [shard.entry(row).group for row in (0, 511, 512, 1199)] == [
        f"train:e0:r{row}:d{row}" for row in (0, 255, 256, 599)
    ]
    with pytest.raises(RunFolderError, match="has no row 1200: it has 1200"):
        shard.entry(1200)


def test_what_was_trained_on_is_kept_with_its_weights_and_notes(tmp_path: Path) -> None:
    first, second = group_of(0, "a"), group_of(1, "b")
    second.metadata["replay_count"] = 2
    shard = written(tmp_path, GeneratedGroups([first], [], {}), Draw([second, first], [1 / 3, 1e-320]))
    assert [(each.group, each.weight, each.metadata) for each in shard.drawn] == [
        ("train:e0:r1:d1", 1 / 3, {"replay_count": 2}),
        ("train:e0:r0:d0", 1e-320, {}),
    ]


def test_no_secret_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    redactor = Redactor()
    redactor.add("hunter2-and-more", "$env:JUDGE_KEY")
    monkeypatch.setattr("slime_view.samples.columns.REDACTOR", redactor)
    told = group_of(0, "the key is hunter2-and-more")
    told.samples[0].metadata["judge"] = {"asked with": "hunter2-and-more"}
    shard = written(tmp_path, GeneratedGroups([told], [], {}))
    assert b"hunter2" not in shard.path.read_bytes()
    (row,) = shard.rows()
    assert row.response == "the key is $env:JUDGE_KEY"
    assert row.metadata == {"judge": {"asked with": "$env:JUDGE_KEY"}}
