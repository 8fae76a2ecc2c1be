import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.errors import NonFiniteError, RunFolderError
from slime_core.telemetry import MetricsLog, MetricsRow, names, strip_timing
from tests.tables import table


def row(rollout_id: int, **metrics: float) -> MetricsRow:
    return MetricsRow(rollout_id, rollout_id, 1000.0 + rollout_id, metrics)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def test_rows_come_back_as_they_were(path: Path) -> None:
    rows = [MetricsRow(0, 1, 5.25, {"rollout/raw_reward": 0.1, "été/µ": -3e-9}), row(1)]
    with MetricsLog(path) as log:
        for each in rows:
            log.append(each)
        assert MetricsLog.read(path) == rows, "each row is in the file at once"


@table("value", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_not_finite_is_refused_by_name(value: float) -> None:
    with pytest.raises(NonFiniteError, match="metric train/loss of rollout 7"):
        MetricsRow(7, 7, 0.0, {"train/grad_norm": 1.0, "train/loss": value})


def test_a_resume_cuts_later_rows_and_writes_them_again(path: Path) -> None:
    with MetricsLog(path) as log:
        log.append(row(0, a=1.0))
        position = log.position()
        log.append(row(1, a=2.0))
        log.append(row(2, a=3.0))
    with MetricsLog(path) as log:
        log.truncate(position)
        log.append(row(1, a=2.5))
    assert MetricsLog.read(path) == [row(0, a=1.0), row(1, a=2.5)]


@given(st.data())
def test_a_write_torn_at_any_byte_costs_that_row_alone(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("torn") / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.append(row(0, a=1.0))
        whole = log.position()
        log.append(row(1, a=2.0))
        end = log.position()
    os.truncate(path, data.draw(st.integers(whole, end - 1)))
    assert MetricsLog.read(path) == [row(0, a=1.0)]
    with MetricsLog(path) as log:
        assert log.position() == whole
        log.append(row(1, a=3.0))
    assert MetricsLog.read(path) == [row(0, a=1.0), row(1, a=3.0)]


@pytest.mark.parametrize("offset", [-1, 1, 10_000])
def test_a_position_where_no_row_ends_is_refused(path: Path, offset: int) -> None:
    with MetricsLog(path) as log:
        log.append(row(0))
        position = log.position()
        log.append(row(1))
        with pytest.raises(RunFolderError, match="expects a line to end at byte"):
            log.truncate(position + offset)
    assert len(MetricsLog.read(path)) == 2


@table(
    "line",
    ["[]", "nonsense", '{"schema_version":1}', '{"schema_version":9,"rollout_id":0,"step":0,"time":0,"metrics":{}}'],
)
def test_a_line_that_is_no_row_is_named(path: Path, line: str) -> None:
    good = json.dumps(row(0).to_dict())
    path.write_text(f"{good}\n{line}\n", "utf-8")
    with pytest.raises(RunFolderError, match=r"metrics\.jsonl, line 2 is not a metrics row"):
        MetricsLog.read(path)


FULL_DISK = """
import resource, sys
from pathlib import Path
from slime_core.errors import RunFolderError
from slime_core.telemetry import MetricsLog, MetricsRow

log = MetricsLog(Path(sys.argv[1]))
log.append(MetricsRow(0, 0, 0.0, {}))
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (log.position() + 10, hard))
try:
    log.append(MetricsRow(1, 1, 0.0, {}))
except RunFolderError as error:
    print(error)
"""


def test_without_room_the_error_says_so_and_the_rows_before_are_whole(path: Path) -> None:
    """The process may write ten more bytes only, so that the row is torn as on a disk that fills up."""
    result = subprocess.run([sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=True)
    assert f"cannot write {path}: File too large. The run folder must be writable and have room" in result.stdout
    assert path.read_bytes().endswith(b"\n")
    assert MetricsLog.read(path) == [MetricsRow(0, 0, 0.0, {})]


def test_comparisons_leave_time_and_speed_out() -> None:
    one = MetricsRow(3, 4, 1.0, {"rollout/raw_reward": 0.5, "perf/step_time": 1.0})
    other = MetricsRow(3, 4, 2.0, {"rollout/raw_reward": 0.5, "perf/step_time": 9.0, "perf/memory_mib/driver": 3.0})
    assert strip_timing(one) == strip_timing(other)
    assert strip_timing(one) == {"rollout_id": 3, "step": 4, "metrics": {"rollout/raw_reward": 0.5}}


def test_evaluation_sets_are_told_from_their_details() -> None:
    metrics = {
        "eval/math": 0.5,
        "eval/math-500": 0.4,
        "eval/math-500-truncated_ratio": 0.1,
        "eval/math-500-pass@16": 0.9,
        "eval/math/response_len/mean": 40.0,
        "rollout/raw_reward": 0.3,
    }
    assert names.eval_datasets(metrics) == ["math", "math-500"]
    assert metrics[names.eval_reward("math-500")] == 0.4
