"""Made rows: by (seed, index), endless, checked like any other, at an exact place."""

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slime_core.data import PromptSource, generated_source, generated_source_of
from slime_core.data.settings import GeneratedSettings
from slime_core.errors import CheckpointError, ConfigError, DataError, UnknownName
from slime_core.roles import DataSourceSetup, RowFormat
from slime_core.sample import Group, Json

SetupOf = Callable[..., DataSourceSetup]
reusing_the_fixture = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
CODE = """
import random

def sums(seed, index, top=9):
    draw = random.Random(seed)
    a, b = draw.randint(0, top), draw.randint(0, top)
    return {"input": f"{a}+{b}=", "label": a + b, "metadata": {"n": index}}

class Sums:
    def __init__(self, top):
        self.top = top

    def __call__(self, seed, index):
        return sums(seed, index, self.top)

NUMBER = 5

def short(seed):
    return {}
"""


def draw(source: PromptSource, count: int) -> list[Group]:
    return asyncio.run(source.draw(count))


def numbered(seed: int, index: int) -> Mapping[str, Json]:
    return {"input": f"{index}?", "label": seed % 100, "metadata": {"deep": {"n": [index]}}}


def every_third_is_bad(seed: int, index: int) -> Mapping[str, Json]:
    if index % 3 == 2:
        raise ZeroDivisionError("no such sum")
    return numbered(seed, index)


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"made_{tmp_path.name}.py"
    path.write_text(CODE)
    return path


def test_rows_follow_one_another_without_end(setup_of: SetupOf) -> None:
    groups = draw(generated_source(numbered, "sums", setup_of(seed=3), size=4), 10)
    assert [str(group.id) for group in groups[3:6]] == ["sums:e0:r3:d3", "sums:e1:r0:d4", "sums:e1:r1:d5"]
    assert [group.samples[0].prompt for group in groups] == [f"{index}?" for index in range(10)]
    first, second = groups[0].samples
    assert first.metadata == second.metadata == {"deep": {"n": [0]}}
    first.metadata["deep"] = None
    assert second.metadata == {"deep": {"n": [0]}}


def test_seeds_are_the_runs_and_the_rows_own(setup_of: SetupOf) -> None:
    setup = setup_of(row_format=RowFormat(label_key="label"))
    labels = [
        [group.samples[0].label for group in draw(generated_source(numbered, name, setup), 20)]
        for name in ("a", "a", "b")
    ]
    assert labels[0] == labels[1] != labels[2]
    assert len(set(map(str, labels[0]))) > 10


def test_code_that_draws_from_the_module_random_is_seeded(setup_of: SetupOf) -> None:
    def careless(seed: int, index: int) -> Mapping[str, Json]:
        return {"input": f"{random.random()} {index}"}

    random.seed(1)
    one = draw(generated_source(careless, "made", setup_of()), 5)
    after = random.random()
    random.seed(1)
    assert random.random() == after  # nobody else's numbers are touched
    assert draw(generated_source(careless, "made", setup_of()), 5) == one
    assert draw(generated_source(careless, "made", setup_of(seed=1)), 5) != one


@reusing_the_fixture
@given(counts=st.lists(st.integers(0, 12), min_size=1, max_size=6), cut=st.integers(0, 5))
def test_it_continues_at_every_cut(setup_of: SetupOf, counts: list[int], cut: int) -> None:
    setup = setup_of(row_format=RowFormat(bad_rows="skip", max_bad_row_rate=0.5))
    whole, parts = (generated_source(every_third_is_bad, "made", setup, size=7) for _ in range(2))
    for number, count in enumerate(counts):
        if number == cut:
            state = json.loads(json.dumps(parts.state_dict()))
            parts = generated_source(every_third_is_bad, "made", setup, size=7)
            parts.load_state_dict(state)
        assert draw(whole, count) == draw(parts, count)
    assert whole.state_dict() == parts.state_dict()


def test_bad_ones_are_errors_or_counted(setup_of: SetupOf) -> None:
    with pytest.raises(DataError, match="made, row 2: making it raised ZeroDivisionError: no such sum"):
        generated_source(every_third_is_bad, "made", setup_of())
    skipping = setup_of(row_format=RowFormat(bad_rows="skip", max_bad_row_rate=0.4))
    source = generated_source(every_third_is_bad, "made", skipping)
    assert [group.id.row for group in draw(source, 5)] == [0, 1, 3, 4, 6]
    assert source.data_metrics()["data/bad_rows"] == 2
    assert source.data_notes() == [
        "made: left out 2 bad rows, the first: made, row 2: making it raised ZeroDivisionError: no such sum"
    ]
    stricter = setup_of(row_format=RowFormat(bad_rows="skip", max_bad_row_rate=0.2))
    with pytest.raises(DataError, match=r"made: 67 of 201 rows are bad, more than max_bad_row_rate = 0\.2"):
        draw(generated_source(every_third_is_bad, "made", stricter), 200)


def test_what_is_no_row_is_bad(setup_of: SetupOf) -> None:
    with pytest.raises(DataError, match="row 0: expected a mapping of columns, got str"):
        generated_source(lambda seed, index: "text", "made", setup_of())  # type: ignore[arg-type, return-value]
    with pytest.raises(DataError, match="must be plain JSON"):
        generated_source(lambda seed, index: {"input": "?", "metadata": {"x": {1}}}, "m", setup_of())  # type: ignore[dict-item]


def test_rows_that_are_all_too_long_end_it(setup_of: SetupOf) -> None:
    source = generated_source(numbered, "made", setup_of(row_format=RowFormat(max_prompt_len=1)))
    with pytest.raises(
        DataError, match=r"1000 rows one after the other cannot be used.*1000 prompts longer than 1 tok"
    ):
        draw(source, 1)


def test_other_code_is_other_data(setup_of: SetupOf) -> None:
    state = generated_source(numbered, "made", setup_of()).state_dict()
    changed = generated_source(lambda seed, index: {"input": f"{index}!"}, "made", setup_of())
    with pytest.raises(CheckpointError, match="made: as many prompts, but not the same"):
        changed.load_state_dict(state)


def test_rows_name_choices(setup_of: SetupOf) -> None:
    source = generated_source(lambda seed, index: {"input": "?", "metadata": {"rm_type": "math"}}, "made", setup_of())
    assert source.named_choices() == {("reward", "math"): "made, row 0: rm_type"}


@pytest.mark.parametrize("name", ["sums", "Sums"])
def test_code_of_the_project_makes_rows(setup_of: SetupOf, code: Path, name: str) -> None:
    given = GeneratedSettings(rows=f"./{code.name}:{name}", options={"top": 3}, size=5)
    source = generated_source_of(given, setup_of(row_format=RowFormat(label_key="label")))
    samples = [group.samples[0] for group in draw(source, 30)]
    assert len(source) == 5
    assert {str(sample.prompt) for sample in samples} <= {f"{a}+{b}=" for a in range(4) for b in range(4)}
    assert all(sample.label == sum(map(int, str(sample.prompt)[:-1].split("+"))) for sample in samples)


@pytest.mark.parametrize(
    ("rows", "error", "says"),
    [
        ("sums", ConfigError, "does not say which object: write ./FILE.py:NAME"),
        ("./{file}:sumz", UnknownName, "no such function or class. Did you mean 'sums'"),
        ("./{file}:NUMBER", UnknownName, "no such function or class"),
        ("./{file}:short", ConfigError, r"cannot be called as wanted, .*NAME\(seed, index, \*\*options\)"),
        ("./{file}:Sums", ConfigError, "cannot be called as wanted, missing a required argument: 'top'"),
        ("./nowhere.py:sums", UnknownName, "nowhere.py"),
    ],
)
def test_a_wrong_name_says_what_to_write(
    setup_of: SetupOf, code: Path, rows: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        generated_source_of(GeneratedSettings(rows=rows.format(file=code.name)), setup_of())
