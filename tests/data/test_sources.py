"""Several files as one data set, and mixtures by weight: names, shares, epochs, and exact state at every cut."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from slime_core.data import (
    PromptSource,
    mixture_source,
    name_files,
    prompt_source,
    row_source,
)
from slime_core.data.settings import MixtureSettings
from slime_core.errors import CheckpointError, ConfigError, DataError
from slime_core.roles import DataSourceSetup, PromptFile, RowFormat
from slime_core.sample import Group, Json

SetupOf = Callable[..., DataSourceSetup]


def draw(source: PromptSource, count: int) -> list[Group]:
    return asyncio.run(source.draw(count))


def plain(groups: list[Group]) -> list[dict[str, Json]]:
    return [group.to_dict() for group in groups]


def ids(source: PromptSource, count: int) -> list[str]:
    return [str(group.id) for group in draw(source, count)]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """a.jsonl of 3 rows, b.jsonl of 5 whose columns have names of their own, sub/a.jsonl of 2."""
    (tmp_path / "sub").mkdir()
    for name, count, key in (("a", 3, "input"), ("b", 5, "question"), ("sub/a", 2, "input")):
        rows = [json.dumps({key: f"{name}{row}", "label": row}) + "\n" for row in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(rows))
    return tmp_path


def several(files: Path, setup_of: SetupOf, **fields: object) -> PromptSource:
    named = name_files([str(files / "a.jsonl"), str(files / "sub/a.jsonl")])
    return prompt_source(setup_of(prompts=[PromptFile(path, name) for path, name in named], **fields))


def mixture(files: Path, setup_of: SetupOf, **fields: object) -> PromptSource:
    sources = {
        "math": {"path": str(files / "a.jsonl"), "weight": 3.0},
        "code": {"path": str(files / "b.jsonl"), "input_key": "question"},
    }
    return mixture_source(MixtureSettings.model_validate({"sources": sources}), setup_of(**fields))


def test_several_files_are_one_epoch(files: Path, setup_of: SetupOf) -> None:
    source = several(files, setup_of)
    name = f"{files.name}/a.jsonl"
    assert len(source) == 5
    assert ids(source, 6) == [
        f"{name}:e0:r0:d0",
        f"{name}:e0:r1:d1",
        f"{name}:e0:r2:d2",
        "sub/a.jsonl:e0:r0:d3",
        "sub/a.jsonl:e0:r1:d4",
        f"{name}:e1:r0:d5",
    ]
    shuffled = draw(several(files, setup_of, shuffle=True, seed=2), 50)
    epochs = [[str(group.samples[0].prompt) for group in shuffled[start : start + 5]] for start in range(0, 50, 5)]
    assert all(sorted(epoch) == ["a0", "a1", "a2", "sub/a0", "sub/a1"] for epoch in epochs)
    assert len({tuple(prompt[0] for prompt in epoch) for epoch in epochs}) > 3, "orders of the two files"


def test_files_are_named_by_as_much_as_tells_them_apart() -> None:
    assert name_files(["x/train.jsonl"]) == [(Path("x/train.jsonl"), "train.jsonl")]
    names = [name for _, name in name_files(["x/a.jsonl", "y/a.jsonl", "y/b.jsonl", "b.jsonl@[0:2]"])]
    assert names == ["x/a.jsonl", "y/a.jsonl", "b.jsonl", "b.jsonl@[0:2]"]
    with pytest.raises(ConfigError, match=r"x/a\.jsonl: given twice"):
        name_files(["x/a.jsonl", "x/a.jsonl"])


def test_a_mixture_keeps_shares_names_and_epochs(files: Path, setup_of: SetupOf) -> None:
    source = mixture(files, setup_of, shuffle=True)
    groups = draw(source, 2560)
    assert len(source) == 8
    for end in range(8, 2560, 8):
        assert abs(sum(group.id.source == "math" for group in groups[:end]) - 0.75 * end) < 3
    other = draw(mixture(files, setup_of, shuffle=True, seed=1), 64)
    assert [group.id.source for group in groups[:64]] != [group.id.source for group in other]
    for name, size in (("math", 3), ("code", 5)):
        places = [(group.id.epoch, group.id.row) for group in groups if group.id.source == name]
        assert Counter(places) == Counter(dict.fromkeys(places, 1))
        assert [epoch for epoch, _ in places] == [number // size for number in range(len(places))]
    assert [group.id.draw for group in groups] == list(range(2560))
    assert groups[0].samples[0].source == groups[0].id.source
    assert (
        source.data_metrics()["data/epoch/math"]
        == [group.id.epoch for group in groups if group.id.source == "math"][-1]
    )


def test_a_member_of_several_files_names_each(files: Path, setup_of: SetupOf) -> None:
    paths: list[Json] = [str(files / "a.jsonl"), str(files / "sub/a.jsonl@[1:]")]
    found = mixture_source(MixtureSettings.model_validate({"sources": {"m": {"path": paths}}}), setup_of())
    assert [name.partition(":e")[0] for name in ids(found, 4)] == ["m/a.jsonl"] * 3 + ["m/a.jsonl@[1:]"]


def test_other_weights_are_another_mixture(files: Path, setup_of: SetupOf) -> None:
    state = mixture(files, setup_of).state_dict()
    other: dict[str, Json] = {"math": {"path": str(files / "a.jsonl")}, "code": {"path": str(files / "a.jsonl")}}
    with pytest.raises(CheckpointError, match=r"streams: \{'math': 3\.0, 'code': 1\.0\} -> "):
        mixture_source(MixtureSettings.model_validate({"sources": other}), setup_of()).load_state_dict(state)


def test_a_changed_file_is_named_and_may_be_accepted(files: Path, setup_of: SetupOf) -> None:
    before = mixture(files, setup_of)
    draw(before, 30)
    before.add(draw(before, 2))
    state = before.state_dict()
    (files / "a.jsonl").write_text('{"input": "new0"}\n{"input": "new1"}\n')
    with pytest.raises(CheckpointError, match=r"has changed .* written: math: 3 -> 2 prompts\. Put .*--accept-changed"):
        mixture(files, setup_of).load_state_dict(state)
    after = mixture(files, setup_of, accept_changed_data=True)
    after.load_state_dict(state)
    groups = draw(after, 40)
    assert [group.id.draw for group in groups] == list(range(30, 70))
    assert plain(groups[:2]) == plain(draw(before, 2))  # what came back has its old prompt
    assert {str(group.samples[0].prompt) for group in groups[2:] if group.id.source == "math"} == {"new0", "new1"}
    resumed = mixture(files, setup_of)
    resumed.load_state_dict(after.state_dict())  # the new data is the run's own now
    assert draw(resumed, 9) == draw(after, 9)


def test_rows_in_memory_are_a_source(setup_of: SetupOf) -> None:
    datasets = pytest.importorskip("datasets")
    rows = [{"input": f"{number}?", "label": number} for number in range(4)]
    setup = setup_of(row_format=RowFormat(label_key="label"))
    source = row_source(datasets.Dataset.from_list(rows), "mine", setup)
    assert draw(source, 9) == draw(row_source(rows, "mine", setup), 9)
    with pytest.raises(DataError, match="mine, row 1: no key 'label'"):
        row_source([*rows[:1], {"input": "?"}], "mine", setup)
