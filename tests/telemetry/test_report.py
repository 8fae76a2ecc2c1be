import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slime_core.errors import RunFolderError
from slime_core.sample import Sample, Status
from slime_core.telemetry import MetricsLog, MetricsRow
from slime_view.figures import figures, write_report
from slime_view.plots import overlay
from slime_view.transcripts import Pair, before_and_after, fenced, inline, transcripts_markdown
from tests.tables import table


def answer(row: int, reward: float) -> Sample:
    prompt = f"What is {row}+4?"
    return Sample(
        prompt=prompt, response=f"{row}", response_length=3, label=row + 4, reward=reward, status=Status.COMPLETED
    )


@pytest.fixture
def run_dir(tmp_path: Path, write_samples: Callable[..., None]) -> Path:
    """A run of 20 rollouts with three evaluations of ten prompts; every third prompt is learnt."""
    run = tmp_path / "first"
    run.mkdir()
    with MetricsLog(run / "metrics.jsonl") as log:
        for rollout in range(20):
            if rollout % 10 == 0:
                log.append(MetricsRow(rollout, rollout, 0.0, {"eval/sums": 0.1 + rollout / 40}))
            reward = rollout / 20
            metrics = {"rollout/raw_reward": reward, "rollout/response_len/mean": 7.0 + rollout}
            perf = {
                "perf/step_time": 2.0,
                "perf/rollout_time": 0.5,
                "perf/train_time": 1.5,
                "perf/tokens_per_sec": 1000.0,
            }
            memory = {"perf/memory_mib/driver": 40.0 + rollout}
            log.append(MetricsRow(rollout, rollout + 1, 0.0, metrics | perf | memory))
        log.append(MetricsRow(20, 20, 0.0, {"eval/sums": 0.9}))
    learnt = {rollout: [float(rollout == 20 and row % 3 == 0) for row in range(10)] for rollout in (0, 10, 20)}
    evals = {number: {"sums": [answer(row, reward) for row, reward in enumerate(of)]} for number, of in learnt.items()}
    write_samples(run / "samples", evals=evals)
    return run


def test_the_report_has_figures_a_picture_and_transcripts(run_dir: Path) -> None:
    paths = write_report(run_dir)
    assert (paths.report, paths.curve, paths.transcripts) == tuple(
        run_dir / "report" / name for name in ("report.md", "reward.png", "transcripts.md")
    )
    report = paths.report.read_text("utf-8")
    for line in (
        "![Reward curve](reward.png)",
        "| rollouts | 20 |",
        "| training reward, first and last 5 rollouts | 0.100 → 0.850 |",
        "| evaluation sums, after 0 and 20 rollouts | 0.100 → 0.900 |",
        "| response length, first and last rollout | 7.0 → 26.0 tokens |",
        "| response tokens | 40,000 |",
        "| time of all rollouts | 40.0 s (generating 10.0 s, training 30.0 s) |",
        "| throughput | 1,000 response tokens/s, training included |",
        "| peak memory | driver 59 MiB |",
    ):
        assert line in report.splitlines()
    assert sorted(path.name for path in paths.report.parent.iterdir()) == ["report.md", "reward.png", "transcripts.md"]


def test_without_matplotlib_the_report_says_what_is_missing(run_dir: Path) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from pathlib import Path; from slime_view.figures import write_report\n"
        f"assert write_report(Path({str(run_dir)!r})).curve is None"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    report = (run_dir / "report" / "report.md").read_text("utf-8")
    assert "No reward curve: it needs the package matplotlib" in report
    assert "0.100 → 0.850" in report


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"is not a run folder: it has no metrics\.jsonl"):
        write_report(tmp_path)
    with pytest.raises(RunFolderError, match=r"has no rollout/raw_reward: is .* a run folder"):
        overlay({"seed 0": tmp_path}, tmp_path / "seeds.png")


@table(
    "rollouts, row",
    [
        (1, ("training reward", "0.000")),
        (3, ("training reward, first and last rollout", "0.000 → 2.000")),
        (5, ("training reward, first and last 2 rollouts", "0.500 → 3.500")),
        (10, ("training reward, first and last 5 rollouts", "2.000 → 7.000")),
    ],
)
def test_the_first_and_the_last_rollouts_of_a_short_run_are_not_the_same(rollouts: int, row: tuple[str, str]) -> None:
    rows = [MetricsRow(each, each, 0.0, {"rollout/raw_reward": float(each)}) for each in range(rollouts)]
    assert figures(rows)[:2] == [("rollouts", str(rollouts)), row]


def test_transcripts_compare_the_same_prompts_and_prefer_changes(run_dir: Path) -> None:
    pairs = before_and_after(run_dir / "samples", count=6)
    assert all(pair.before.prompt == pair.after.prompt for pair in pairs)
    assert [(pair.before.rollout_id, pair.after.rollout_id) for pair in pairs] == [(0, 20)] * 6
    assert [pair.before.prompt for pair in pairs] == [f"What is {row}+4?" for row in (0, 3, 6, 1, 2, 4)]


def test_no_answer_can_break_out_of_its_block(tmp_path: Path, write_samples: Callable[..., None]) -> None:
    assert fenced("a ``` b").splitlines()[0] == "````text"
    assert inline("`x`\ny") == "`` `x` y ``"
    trick = Sample(prompt=[{"role": "user", "content": "Hi"}], response="```\n# Not a heading\n`````", label="`")
    write_samples(tmp_path, evals={0: {"e": [trick]}, 1: {"e": [trick]}})
    (pair,) = before_and_after(tmp_path)
    assert isinstance(pair, Pair)
    text = transcripts_markdown([pair])
    assert "``````text\n```\n# Not a heading\n`````\n``````" in text
    assert "user: Hi" in text
    assert "After 1 rollouts, not scored, 0 tokens, pending:" in text
