"""PromptSource: exact draws for any pattern of requests, and state that continues them exactly at every cut."""

import asyncio
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slime_core.data import HfTokenizer, PromptSource
from slime_core.data.prompts import RecordFile
from slime_core.errors import CheckpointError, DataError
from slime_core.roles import NamesChoices
from slime_core.sample import Group, Json, Status
from tests.tables import table

MakeSource = Callable[..., PromptSource]
ROWS = [{"input": f"What is {n}+1?", "label": n + 1, "metadata": {"n": n}} for n in range(7)]
reusing_the_fixture = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


def draw(source: PromptSource, count: int) -> list[dict[str, Json]]:
    return [group.to_dict() for group in asyncio.run(source.draw(count))]


def load(group: dict[str, Json]) -> Group:
    return Group.from_dict(group)


@st.composite
def scripts(draw_: st.DrawFn) -> list[tuple[str, int]]:
    """Draws of any size, with groups given back and cuts in between."""
    steps = st.tuples(st.sampled_from(["draw", "give back", "cut"]), st.integers(0, 17))
    return draw_(st.lists(steps, min_size=1, max_size=8))


@reusing_the_fixture
@given(script=scripts(), shuffle=st.booleans())
def test_a_cut_at_any_point_changes_nothing(
    make_source: MakeSource, script: list[tuple[str, int]], shuffle: bool
) -> None:
    whole, cut = (make_source(ROWS, label_key="label", shuffle=shuffle) for _ in range(2))
    last: list[dict[str, Json]] = []
    for action, count in script:
        if action == "draw":
            last = draw(whole, count)
            assert draw(cut, count) == last
        elif action == "give back":
            for source in (whole, cut):
                source.add([load(group) for group in last[:count]])
            last = []
        else:
            state = json.loads(json.dumps(cut.state_dict()))
            cut = make_source(ROWS, label_key="label", shuffle=shuffle)
            cut.load_state_dict(state)
    assert draw(cut, 20) == draw(whole, 20)
    assert cut.state_dict() == whole.state_dict()


def test_shuffled_epochs_have_orders_of_their_own(make_source: MakeSource) -> None:
    rows = [{"input": str(n)} for n in range(50)]
    source = make_source(rows, shuffle=True)
    first, second = ([group.id.row for group in asyncio.run(source.draw(50))] for _ in range(2))
    other = [group.id.row for group in asyncio.run(make_source(rows, shuffle=True, seed=1).draw(50))]
    assert len({tuple(first), tuple(second), tuple(other), tuple(range(50))}) == 4


def test_a_group_carries_its_identity_and_its_row(make_source: MakeSource) -> None:
    source = make_source(ROWS, label_key="label", n=3)
    group = asyncio.run(source.draw(9))[8]
    assert str(group.id) == "rows:e1:r1:d8"
    assert [sample.group_index for sample in group.samples] == [8, 8, 8]
    assert [sample.index for sample in group.samples] == [0, 1, 2]
    assert [sample.rollout_id for sample in group.samples] == [24, 25, 26]
    assert {sample.status for sample in group.samples} == {Status.PENDING}
    first, second = group.samples[:2]
    assert (first.prompt, first.label, first.metadata, first.source) == ("What is 1+1?", 2, {"n": 1}, "rows")
    first.metadata["n"] = "changed"
    assert second.metadata == {"n": 1}


def test_rows_name_choices_in_their_metadata(make_source: MakeSource) -> None:
    names: list[dict[str, str]] = [
        {},
        {"rm_type": "math"},
        {"rm_type": "math", "generate_function_path": "tools"},
        {"custom_rm_path": "./own.py:reward"},
    ]
    source = make_source([{"input": str(row), "metadata": each} for row, each in enumerate(names)])
    named = source.named_choices()
    assert isinstance(source, NamesChoices)
    assert list(named) == [("reward", "math"), ("generator", "tools"), ("reward", "./own.py:reward")]
    assert [where.rpartition(".jsonl:")[2] for where in named.values()] == [
        "2: metadata.rm_type",
        "3: metadata.generate_function_path",
        "4: metadata.custom_rm_path",
    ]
    samples = [group.samples[0] for group in asyncio.run(source.draw(4))]
    assert [(each.custom_rm_path, each.generate_function_path) for each in samples] == [
        (None, None),
        (None, None),
        (None, "tools"),
        ("./own.py:reward", None),
    ]
    with pytest.raises(DataError, match=r":1: metadata\.rm_type must be a name, got list"):
        make_source([{"input": "?", "metadata": {"rm_type": ["math"]}}])


def test_long_prompts_are_left_out_and_counted(make_source: MakeSource, tokenizer: HfTokenizer) -> None:
    rows = [{"input": "x" * length} for length in (3, 40, 5, 41)]
    limit = len(tokenizer.encode("x" * 5))
    source = make_source(rows, max_prompt_len=limit)
    assert len(source) == 2
    assert source.data_metrics() == {"data/prompts": 2.0, "data/filtered": 2.0, "data/bad_rows": 0.0, "data/epoch": 0.0}
    assert source.data_notes() == [f"rows: left out 2 prompts longer than {limit} tokens"]
    assert [group.id.row for group in asyncio.run(source.draw(3))] == [0, 2, 0]


def test_prompts_that_are_all_too_long_say_how_short_the_shortest_is(make_source: MakeSource) -> None:
    with pytest.raises(DataError, match="it has no rows"):
        make_source([])
    with pytest.raises(DataError, match=r"all 2 prompts are longer than 2 tokens, the shortest has \d+"):
        make_source([{"input": "123456789"}, {"input": "1234567890"}], max_prompt_len=2)


def test_prompts_go_through_the_chat_template_or_stay_messages(make_source: MakeSource) -> None:
    messages = [{"role": "system", "content": "Add."}, {"role": "user", "content": "2+3"}]
    tools = [{"type": "function", "function": {"name": "add"}}]
    plain = make_source([{"input": messages, "tools": json.dumps(tools)}], apply_chat_template_kwargs={"think": False})
    sample = asyncio.run(plain.draw(1))[0].samples[0]
    assert (sample.prompt, sample.metadata["tools"]) == (messages, tools)
    assert sample.apply_chat_template_kwargs == {"think": False}
    source = make_source([{"input": "hi"}, {"input": messages}], apply_chat_template=True)
    texts = [group.samples[0].prompt for group in asyncio.run(source.draw(2))]
    assert texts[0] == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert str(texts[1]).startswith("<|im_start|>system\nAdd.<|im_end|>\n<|im_start|>user\n2+3")


@table(
    "row, fields, says",
    [
        ({"question": "?", "answer": 1}, {}, r"no key 'input'; the row has question, answer: give --input-key"),
        ({"input": "?"}, {"label_key": "label"}, r"no key 'label'; the row has input: give --label-key"),
        ({}, {}, "the row has no keys at all"),
        ({"input": 5}, {}, "must be a text or a list of chat messages, got int"),
        ({"input": ""}, {}, "got nothing"),
        ({"input": [{"content": "no role"}]}, {}, "message 0 of .input. must be an object"),
        ({"input": "?", "metadata": "text"}, {}, "'metadata' must be an object, got str"),
        ({"input": "?", "tools": "{"}, {}, "'tools' is a text, but not JSON"),
    ],
)
def test_a_bad_row_is_refused_with_its_line(
    make_source: MakeSource, row: dict[str, object], fields: dict[str, object], says: str
) -> None:
    with pytest.raises(DataError, match=rf"\.jsonl:2: .*{says}"):
        make_source([{"input": "fine", "label": 0}, row], **fields)


@table(
    "rows, fields, says",
    [
        (ROWS[:-1], {}, "the data has changed .*: rows: 7 -> 6 prompts.*--accept-changed-data"),
        ([*ROWS[:-1], {"input": "another"}], {}, "rows: as many prompts, but with other content"),
        (ROWS, {"seed": 1}, "seed: 0 -> 1"),
        (ROWS, {"shuffle": True}, "shuffle: False -> True"),
        (ROWS, {"name": "other"}, r"streams: \['rows'\] -> \['other'\]"),
    ],
)
def test_a_position_in_other_data_is_refused(
    make_source: MakeSource, rows: list[dict[str, object]], fields: dict[str, object], says: str
) -> None:
    state = make_source(ROWS).state_dict()
    with pytest.raises(CheckpointError, match=says):
        make_source(rows, **fields).load_state_dict(state)


def test_other_samples_a_prompt_go_on_from_the_same_place_with_numbers_of_their_own(make_source: MakeSource) -> None:
    first, more = make_source(ROWS, n=4), make_source(ROWS, n=2)
    old = asyncio.run(first.draw(3))
    more.load_state_dict(first.state_dict())
    new = asyncio.run(more.draw(2))
    assert [(group.id.row, len(group.samples)) for group in new] == [(3, 2), (4, 2)]
    numbers = [sample.rollout_id for group in (*old, *new) for sample in group.samples]
    assert numbers == list(range(16))


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    says = r"do not fit into the temporary directory .*No space left.*set TMPDIR"
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda prefix: full)
        with pytest.raises(DataError, match=says):
            RecordFile([b"x"])
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", "/dev/full")
    with pytest.raises(DataError, match="no temporary file for the prompts: Not a directory; set TMPDIR"):
        RecordFile([b"x"])
