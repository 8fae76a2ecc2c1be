"""The report of a run, made from its folder alone: figures, reward curve, transcripts before and after training.

paths = write_report(run_dir)
paths.report        # run_dir/report/report.md
paths.curve         # run_dir/report/reward.png; None without matplotlib
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slime_core.errors import RunFolderError
from slime_core.outputs import nofollow
from slime_core.telemetry import MetricsLog, MetricsRow, names, run_folder_errors
from slime_core.telemetry.display import seconds
from slime_view.plots import curve, draw_reward
from slime_view.transcripts import before_and_after, inline, transcripts_markdown

AVERAGED = 5
"""Rollouts averaged for the first and for the last training reward."""


@dataclass(frozen=True, slots=True)
class ReportPaths:
    """Paths of the written files."""

    report: Path
    """report.md."""
    curve: Path | None
    """reward.png; None without matplotlib or without a training reward."""
    transcripts: Path | None
    """transcripts.md; None with fewer than two evaluations."""


def report_of_run(run_dir: Path) -> Sequence[tuple[str, Path]]:
    """Rewrite run_dir/report/ and return its labelled files; raises the same errors as `write_report`."""
    paths = write_report(run_dir)
    found = (
        ("report", paths.report),
        ("reward curve", paths.curve),
        ("transcripts before and after", paths.transcripts),
    )
    return [(what, path) for what, path in found if path is not None]


def write_report(run_dir: Path) -> ReportPaths:
    """Rewrite run_dir/report/.

    Raises:
        RunFolderError: it is not a run folder, or it cannot be written.
    """
    metrics = run_dir / "metrics.jsonl"
    if not metrics.exists():
        raise RunFolderError(
            f"{run_dir} is not a run folder: it has no metrics.jsonl. Give the folder named by --save."
        )
    rows = MetricsLog.read(metrics)
    folder = run_dir / "report"
    title = run_dir.resolve().name
    with run_folder_errors(folder, "make"):
        nofollow(folder).mkdir(parents=True, exist_ok=True)
    picture, note = _picture(rows, title, nofollow(folder / "reward.png", 2))
    transcripts = _transcripts(run_dir / "samples", folder / "transcripts.md")
    lines = [f"# Report of {inline(title)}", "", note, "", "| | |", "|---|---|"]
    lines += [f"| {label} | {value} |" for label, value in figures(rows)]
    if transcripts is None:
        lines += ["", "No transcripts: they compare two evaluations of the same prompts."]
    else:
        lines += ["", f"[Transcripts before and after]({transcripts.name})"]
    report = folder / "report.md"
    _write(report, "\n".join(lines) + "\n")
    return ReportPaths(report, picture, transcripts)


def figures(rows: Sequence[MetricsRow]) -> list[tuple[str, str]]:
    """The report's table: label and value of each available figure."""
    table = []
    rewards = [value for _, value in curve(rows, names.REWARD)]
    if rewards:
        table.append(("rollouts", f"{len(rewards)}"))
        table.append(_rewards(rewards))
    for dataset in sorted({name for row in rows for name in names.eval_datasets(row.metrics)}):
        points = curve(rows, names.eval_reward(dataset))
        where = f"after {points[0][0]} and {points[-1][0]} rollouts"
        table.append((f"evaluation {dataset.replace('|', '/')}, {where}", f"{points[0][1]:.3f} → {points[-1][1]:.3f}"))
    lengths = [value for _, value in curve(rows, names.RESPONSE_LENGTH)]
    if lengths:
        table.append(("response length, first and last rollout", f"{lengths[0]:.1f} → {lengths[-1]:.1f} tokens"))
    return [*table, *_costs(rows)]


def _rewards(rewards: Sequence[float]) -> tuple[str, str]:
    """The first and the last training reward, over windows that do not overlap."""
    count = min(AVERAGED, len(rewards) // 2)
    if count == 0:
        return "training reward", f"{rewards[0]:.3f}"
    first, last = sum(rewards[:count]) / count, sum(rewards[-count:]) / count
    which = f"first and last {count} rollouts" if count > 1 else "first and last rollout"
    return f"training reward, {which}", f"{first:.3f} → {last:.3f}"


def _costs(rows: Sequence[MetricsRow]) -> list[tuple[str, str]]:
    table = []
    spent = _sum(rows, names.STEP_TIME)
    tokens = sum(row.metrics.get(names.THROUGHPUT, 0.0) * row.metrics.get(names.STEP_TIME, 0.0) for row in rows)
    if tokens:
        table.append(("response tokens", f"{tokens:,.0f}"))
    if spent:
        parts = [("generating", names.ROLLOUT_TIME), ("training", names.TRAIN_TIME)]
        split = ", ".join(f"{what} {seconds(_sum(rows, name))}" for what, name in parts if _sum(rows, name))
        table.append(("time of all rollouts", seconds(spent) + (f" ({split})" if split else "")))
    if tokens and spent:
        table.append(("throughput", f"{tokens / spent:,.0f} response tokens/s, training included"))
    peaks: dict[str, float] = {}
    for row in rows:
        for name, value in row.metrics.items():
            if name.startswith(names.MEMORY_PREFIX):
                process = name.removeprefix(names.MEMORY_PREFIX)
                peaks[process] = max(peaks.get(process, 0.0), value)
    if peaks:
        table.append(("peak memory", ", ".join(f"{process} {mib:,.0f} MiB" for process, mib in sorted(peaks.items()))))
    return table


def _sum(rows: Sequence[MetricsRow], name: str) -> float:
    return sum(value for _, value in curve(rows, name))


def _picture(rows: Sequence[MetricsRow], title: str, png: Path) -> tuple[Path | None, str]:
    if not curve(rows, names.REWARD):
        return None, "No reward curve: no rollout is done yet."
    try:
        draw_reward(rows, title, png)
    except ModuleNotFoundError as error:
        return None, (
            f"No reward curve: it needs the package {error.name}, which is not installed. "
            "Type `pip install 'matplotlib>=3.9'`; `slime resume` on the run folder then rewrites this report."
        )
    return png, f"![Reward curve]({png.name})"


def _transcripts(samples: Path, path: Path) -> Path | None:
    pairs = before_and_after(samples)
    if not pairs:
        return None
    _write(path, transcripts_markdown(pairs))
    return path


def _write(path: Path, text: str) -> None:
    with run_folder_errors(path, "write"):
        nofollow(path, 2).write_text(text, "utf-8", errors="backslashreplace", newline="\n")
