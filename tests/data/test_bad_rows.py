"""Bad rows: an error with file and line, or left out, counted and told; never silently, never too many."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slime_core.data import ChatTemplate, HfTokenizer, PromptSource
from slime_core.errors import DataError
from tests.tables import table

MakeSource = Callable[..., PromptSource]
GOOD = [json.dumps({"input": f"{number}?", "label": number}) for number in range(20)]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Twenty good rows; rows 3 and 8 are bad, on lines 4 and 10, a blank line between."""
    path = tmp_path / "mixed.jsonl"
    path.write_text("\n".join([*GOOD[:3], "{not json", *GOOD[3:7], "", '{"input": "x", "label": null}', *GOOD[7:]]))
    return path


@table("fields, rate", [({}, "0"), ({"max_bad_row_rate": 0.09}, r"0\.09")])
def test_too_many_are_an_error(make_source: MakeSource, mixed: Path, fields: dict[str, float], rate: str) -> None:
    says = rf"rows: 2 of 22 rows are bad, more than max_bad_row_rate = {rate} .*\n.*:4: not"
    with pytest.raises(DataError, match=says):
        make_source([], path=mixed, label_key="label", **fields)


def test_skipped_ones_are_counted_and_told(make_source: MakeSource, mixed: Path) -> None:
    source = make_source([], path=mixed, label_key="label", max_bad_row_rate=0.1)
    assert source.data_metrics()["data/bad_rows"] == 2
    assert source.data_notes()[0].startswith(f"rows: left out 2 bad rows, the first: {mixed}:4: not JSON")
    groups = asyncio.run(source.draw(20))
    assert [group.samples[0].label for group in groups] == list(range(20))
    assert [group.id.row for group in groups] == [0, 1, 2, 4, 5, 6, 7, *range(9, 22)]  # numbers are the file's


def test_a_file_of_bad_rows_alone_is_an_error(make_source: MakeSource) -> None:
    with pytest.raises(DataError, match=r"not one of 2 rows can be used; .*left out 2 bad rows"):
        make_source([{"a": 1}, {"a": 2}], max_bad_row_rate=1.0)


def test_rows_that_json_cannot_keep_are_skipped_too(make_source: MakeSource, tmp_path: Path) -> None:
    path = tmp_path / "nan.parquet"
    pq.write_table(pa.table({"input": ["a", "b"], "label": [float("nan"), 1.0]}), path)
    source = make_source([], path=path, label_key="label", max_bad_row_rate=0.5)
    assert [group.id.row for group in asyncio.run(source.draw(1))] == [1]
    assert "nan.parquet, row 0: prompt, label, metadata and media must be plain JSON" in source.data_notes()[0]


def test_a_template_that_makes_nothing_of_a_row_is_named_with_it(
    make_source: MakeSource, tokenizer: HfTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jinja takes a misspelt name for nothing."""
    nothing = ChatTemplate({"default": "{% for m in messages %}{{ m.contents }}{% endfor %}"}, {}, "models/mine")
    monkeypatch.setattr(tokenizer, "template", nothing)
    with pytest.raises(DataError, match=r"rows-0\.jsonl:1: .*the chat template renders its messages as an empty text"):
        make_source([{"input": "What is 1+1?"}], apply_chat_template=True)
