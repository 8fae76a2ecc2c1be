from pathlib import Path

import pytest

from slime_core.errors import RunFolderError
from slime_core.sample import Group, GroupId, Sample, Status
from slime_core.telemetry import SampleLog


def group(row: int, samples: int = 2) -> Group:
    made = [
        Sample(prompt=f"prompt {row}", response=f"response {index}", reward=float(index), status=Status.COMPLETED)
        for index in range(samples)
    ]
    return Group(GroupId("train", 0, row, row), made)


def test_the_first_groups_of_a_rollout_are_kept(tmp_path: Path) -> None:
    path = SampleLog(tmp_path, groups=2).write(7, [group(row) for row in range(5)])
    assert path == tmp_path / "rollout_000007.jsonl"
    rows = SampleLog.read(path)
    assert [(row.group, row.index) for row in rows] == [
        ("train:e0:r0:d0", 0),
        ("train:e0:r0:d0", 1),
        ("train:e0:r1:d1", 0),
        ("train:e0:r1:d1", 1),
    ]
    assert (rows[1].rollout_id, rows[1].response, rows[1].reward, rows[1].status) == (7, "response 1", 1.0, "completed")


def test_the_first_samples_of_each_evaluation_set_are_kept(tmp_path: Path) -> None:
    samples = group(0, samples=3).samples
    path = SampleLog(tmp_path, eval_samples=2).write_eval(10, {"a/b": samples, "c": samples[:1]})
    assert [(row.source, row.index, row.group) for row in SampleLog.read(path)] == [
        ("a/b", 0, None),
        ("a/b", 1, None),
        ("c", 0, None),
    ]


def test_a_rollout_run_again_replaces_its_file(tmp_path: Path) -> None:
    log = SampleLog(tmp_path)
    log.write(0, [group(0)])
    path = log.write(0, [group(1)])
    assert {row.prompt for row in SampleLog.read(path)} == {"prompt 1"}
    assert [each.name for each in tmp_path.iterdir()] == ["rollout_000000.jsonl"]


def test_any_text_that_a_model_can_write_is_kept(tmp_path: Path) -> None:
    odd = "line\nline\r\n\u2028 \x00 \ud83d half a pair, 漢字"
    path = SampleLog(tmp_path).write_eval(0, {"e": [Sample(prompt="p", response=odd)]})
    (row,) = SampleLog.read(path)
    assert row.response == odd


def test_a_line_that_is_no_sample_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rollout_000000.jsonl"
    path.write_text('{"schema_version":1,"prompt":"p"}\n')
    with pytest.raises(RunFolderError, match="line 1 is no samples row"):
        SampleLog.read(path)


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "samples").touch()
    with pytest.raises(RunFolderError, match=r"cannot make .*samples"):
        SampleLog(tmp_path / "samples")
