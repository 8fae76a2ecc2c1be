"""SpanLog: what is noted comes back; what is torn is cut, what is damaged is named, what is too much is left out."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from slime_core.errors import RunFolderError
from slime_core.sample import GroupId
from slime_view import spans
from slime_view.spans import SpanLog

FIRST, SECOND = GroupId("train", 0, 17, 17), GroupId("train", 0, 18, 18)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spans.jsonl"


def noted(path: Path, *rollouts: int) -> SpanLog:
    """A log with a line for each of these rollouts: a phase, and a sample of each of two groups."""
    log = SpanLog(path)
    for rollout_id in rollouts:
        log.add_phase("generate", rollout_id, 1.0, 2.5)
        log.add_sample(FIRST, 0, False, [("engine", 1.0), ("reward math", 1.5)], 2.0)
        log.add_sample(SECOND, None, True, [("engine", 1.0)], 3.0)
        asyncio.run(log.write(rollout_id))
    return log


def test_times_count_from_when_the_log_was_opened(path: Path) -> None:
    before, log = time.time(), SpanLog(path)
    began = time.monotonic()
    with log.phase("checkpoint", 3):
        time.sleep(0.01)
    ended = time.monotonic()
    asyncio.run(log.write(3))
    (line,) = SpanLog.read(path)
    (phase,) = line.phases
    assert (line.rollout_id, phase.name, phase.rollout_id) == (3, "checkpoint", 3)
    assert before <= line.began <= time.time()
    assert 0 <= phase.began < phase.ended
    assert 10_000 <= phase.ended - phase.began <= round((ended - began) * 1e6) + 1


def test_each_line_has_what_was_noted_since_the_one_before(path: Path) -> None:
    log = noted(path, 0, 1)
    asyncio.run(log.write(2))  # nothing was
    lines = SpanLog.read(path)
    assert [line.rollout_id for line in lines] == [0, 1]
    assert [[phase.rollout_id for phase in line.phases] for line in lines] == [[0], [1]]
    assert [[sample.group for sample in line.samples] for line in lines] == [[str(FIRST), str(SECOND)]] * 2
    assert len({line.began for line in lines}) == 1


def test_a_group_is_found_in_all_lines_with_the_time_that_they_count_from(path: Path) -> None:
    noted(path, 0, 1)
    noted(path, 1)  # of a resumed run
    lines = SpanLog.read(path)
    found = SpanLog.read_group(path, str(SECOND))
    assert [began for began, _ in found] == [line.began for line in lines]
    assert [(sample.group, sample.index, sample.evaluation) for _, sample in found] == [(str(SECOND), None, True)] * 3
    assert SpanLog.read_group(path, "train:e0:r1:d1") == []


def test_a_torn_last_line_is_left_out_and_cut_when_it_is_opened(path: Path) -> None:
    noted(path, 0)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 2])
    assert [line.rollout_id for line in SpanLog.read(path)] == [0]
    noted(path, 1)
    assert path.read_bytes().startswith(whole)
    assert [line.rollout_id for line in SpanLog.read(path)] == [0, 1]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schema_version": 2}, "schema_version 2, this slime-core reads 1"),
        ({"phases": [["generate", 0, 1]]}, "missing 1 required positional argument"),
        ({"samples": [["train:e0:r17:d17", 0, False, ["engine"], 2]]}, "argument 2 is shorter"),
        ({"samples": 3}, "not iterable"),
    ],
)
def test_a_line_that_is_not_one_of_spans_is_named(path: Path, change: dict[str, object], why: str) -> None:
    noted(path, 0)
    line = path.read_text("utf-8")
    path.write_text(line + json.dumps(json.loads(line) | change) + "\n", "utf-8")
    with pytest.raises(RunFolderError, match="line 2 is not a line of spans") as told:
        SpanLog.read(path)
    assert why in str(told.value)


def test_samples_beyond_the_longest_line_are_not_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "LONGEST", 2)
    log = SpanLog(path)
    for index in range(3):
        log.add_sample(FIRST, index, False, [("engine", 1.0)], 2.0)
    log.add_phase("generate", 0, 1.0, 2.0)
    asyncio.run(log.write(0))
    (line,) = SpanLog.read(path)
    assert [sample.index for sample in line.samples] == [0, 1]
    assert [phase.name for phase in line.phases] == ["generate"]
