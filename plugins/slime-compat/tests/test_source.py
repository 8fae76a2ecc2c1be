"""slime's data sources, and their files in the checkpoint."""

import asyncio
import json
from pathlib import Path

import pytest

from slime_compat.settings import FunctionSettings
from slime_compat.source import SlimeDataSource
from slime_core.catalog import Catalog
from slime_core.errors import ContractError
from slime_core.roles import DataSourceSetup, PromptFile, RowFormat
from slime_core.run.build import with_nested_make
from slime_core.sample import Json
from slime_testing import CharTokenizer
from tests.tables import table

CATALOG = Catalog.discover()


def make(role: str, name: str, **settings: object) -> object:
    raise LookupError(name)


def source(path: str, rows: Path | None = None, *, shuffle: bool = False, **args: Json) -> SlimeDataSource:
    row_format = RowFormat(label_key="label")
    prompts = [PromptFile.of(rows, "rows", row_format)] if rows else ()
    setup = DataSourceSetup(
        make,
        1,
        prompts=prompts,
        tokenizer=CharTokenizer(),
        n_samples_per_prompt=2,
        shuffle=shuffle,
        row_format=row_format,
    )
    return SlimeDataSource(FunctionSettings(path=path, args=args), with_nested_make("data_source", setup, CATALOG))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"input": "x" * n, "label": str(n)}) + "\n" for n in (3, 1, 2)))
    return path


def slimes(name: str) -> str:
    """The path of a class, as a user of slime writes it."""
    return f"slime.rollout.data_source.{name}"


def draw(made: SlimeDataSource, count: int) -> list[str]:
    return [str(group.samples[0].prompt) for group in asyncio.run(made.draw(count))]


def test_groups_and_samples_are_numbered(path: str) -> None:
    first, second = asyncio.run(source(f"{path}Counting").draw(2))
    assert first.id != second.id
    assert [(sample.group_index, sample.index) for sample in second.samples] == [(1, 0), (1, 1)]
    assert len({sample.rollout_id for group in (first, second) for sample in group.samples}) == 4


def test_state_resumes_with_returned_groups_first(path: str) -> None:
    one = source(f"{path}Counting")
    groups = asyncio.run(one.draw(3))
    one.add(groups[1:])
    state = json.loads(json.dumps(one.state_dict()))
    other = source(f"{path}Counting")
    other.load_state_dict(state)
    assert draw(other, 4) == draw(one, 4) == ["1", "2", "3", "4"]


def test_short_source_is_an_error(path: str) -> None:
    with pytest.raises(ContractError, match=r"get_samples\(3\) returned 2 groups"):
        asyncio.run(source(f"{path}ShortOfPrompts").draw(3))


@table("name", ["RolloutDataSource", "RolloutDataSourceWithBuffer"])
def test_slime_sources_read_prompts_by_epoch(name: str, rows: Path) -> None:
    """Draw five groups from three rows; slime's source returns at most the rest of one epoch."""
    made = source(slimes(name), rows)
    groups = asyncio.run(made.draw(5))
    assert [group.samples[0].prompt for group in groups] == ["xxx", "x", "xx", "xxx", "x"]
    assert [sample.label for sample in groups[1].samples] == ["1", "1"]
    assert len(made) == 3


def test_shuffled_epochs_differ_and_resume_exactly(rows: Path) -> None:
    one = source(slimes("RolloutDataSource"), rows, shuffle=True)
    epochs = [draw(one, 3) for _ in range(8)]
    assert all(sorted(epoch) == ["x", "xx", "xxx"] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    again = source(slimes("RolloutDataSource"), rows, shuffle=True)
    assert draw(again, 4) == [*epochs[0], epochs[1][0]]
    state = json.loads(json.dumps(again.state_dict()))
    resumed = source(slimes("RolloutDataSource"), rows, shuffle=True)
    resumed.load_state_dict(state)
    assert draw(resumed, 5) == [*epochs[1][1:], *epochs[2]]


def test_subclass_extends_slime_source(path: str, rows: Path) -> None:
    """The shortest prompts come first, by a method that calls the overridden one."""
    assert draw(source(f"{path}ShortestFirst", rows), 3) == ["x", "xx", "xxx"]


def test_buffered_groups_go_first_and_are_saved(path: str, rows: Path) -> None:
    made = source(f"{path}Returning", rows)
    assert draw(made, 2) == ["xxx", "x"]
    state = json.loads(json.dumps(made.state_dict()))
    resumed = source(f"{path}Returning", rows)
    resumed.load_state_dict(state)
    assert draw(resumed, 2) == draw(made, 2) == ["xxx", "xx"], "what was put back, then the next row"


def test_buffer_filter_selects_from_the_buffer(path: str, rows: Path) -> None:
    made = source(f"{path}Returning", rows, buffer_filter_path=f"{path}take_nothing")
    assert draw(made, 2) + draw(made, 2) == ["xxx", "x", "xx", "xxx"]


def test_without_prompt_data_samples_are_blank() -> None:
    made = source(slimes("RolloutDataSourceWithBuffer"))
    assert draw(made, 2) == ["", ""]
    assert len(made) == 0
