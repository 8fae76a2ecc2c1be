"""Pictures of a run: its reward curve, and several runs in one axes. Needs matplotlib, imported on use.

    draw_reward(MetricsLog.read(run_dir / "metrics.jsonl"), "demo", run_dir / "report" / "reward.png")
    overlay({"seed 0": Path("runs/seed0"), "seed 1": Path("runs/seed1")}, Path("seeds.png"))

No display is needed, no global state of matplotlib is touched, and equal rows give equal bytes.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from slime_core.errors import RunFolderError
from slime_core.telemetry import MetricsLog, MetricsRow, names, run_folder_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curve = list[tuple[int, float]]
"""Points (rollouts done, value), in order."""

PLOT_STYLE: dict[str, object] = {
    "axes.axisbelow": True,
    "axes.edgecolor": "#9aa4ad",
    "axes.grid": True,
    "axes.labelcolor": "#39424a",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.titlesize": 13,
    "axes.titleweight": "bold",
    "figure.dpi": 150,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "grid.color": "#e4e8eb",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.solid_capstyle": "round",
    "savefig.dpi": 150,
    "xtick.color": "#5c6770",
    "ytick.color": "#5c6770",
}
"""matplotlib's rcParams of every picture."""

COLORS = ("#0b7a75", "#d1495b", "#3c6fb4", "#e08e0b", "#7b4fa3", "#5c8a3a", "#8c564b", "#17a2b8")
"""Distinguishable in most kinds of colour blindness; the first one is the reward's."""
LENGTH_COLOR = "#a3adb5"


def curve(rows: Sequence[MetricsRow], name: str) -> Curve:
    """One metric by rollouts done: a rollout's value counts at its end, an evaluation's when it was made."""
    late = 0 if name.startswith(names.EVAL_PREFIX) else 1
    return [(row.rollout_id + late, row.metrics[name]) for row in rows if name in row.metrics]


def smooth(values: Sequence[float]) -> list[float]:
    """Running mean over a tenth of the points, centred. It narrows towards the start, where curves are steep, and
    becomes one-sided at the end, where a lone last value would mislead.
    """
    reach = max(1, len(values) // 20)
    means = []
    for here in range(len(values)):
        around = min(reach, here)
        window = values[here - around : here + around + 1]
        means.append(sum(window) / len(window))
    return means


def draw_reward(rows: Sequence[MetricsRow], title: str, png: Path) -> None:
    """Training reward and evaluations on the left axis, mean response length on the right one.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        RunFolderError: the file cannot be written.
    """
    with _figure(png, title, "reward") as (figure, axes):
        rewards = curve(rows, names.REWARD)
        lengths = curve(rows, names.RESPONSE_LENGTH)
        if lengths:
            right = axes.twinx()
            right.plot(
                *_columns(lengths), color=LENGTH_COLOR, linewidth=1.2, linestyle=(0, (4, 2)), label="response length"
            )
            right.set_ylabel("response length (tokens)", color="#7b8790")
            right.set_ylim(0, 1.35 * max(max(each for _, each in lengths), 1.0))
            right.grid(visible=False)
            axes.set_zorder(right.get_zorder() + 1)
            axes.patch.set_visible(False)
        _draw_training(axes, rewards, "training reward", COLORS[0])
        datasets = sorted({name for row in rows for name in names.eval_datasets(row.metrics)})
        for color, dataset in zip(_cycle(COLORS[1:]), datasets, strict=False):
            points = curve(rows, names.eval_reward(dataset))
            axes.plot(
                *_columns(points),
                "o--",
                color=color,
                linewidth=1.4,
                markersize=6,
                label=f"eval {dataset}, last {points[-1][1]:.3f}",
            )
        _finish(figure, axes, rewards)


def overlay(curves: Mapping[str, Path], png: Path, title: str = "training reward") -> None:
    """The training reward of several run folders, by label, in one picture.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
        RunFolderError: a folder has no training reward, or the file cannot be written.
    """
    rewards = {}
    for label, run_dir in curves.items():
        rewards[label] = curve(MetricsLog.read(run_dir / "metrics.jsonl"), names.REWARD)
        if not rewards[label]:
            raise RunFolderError(f"{run_dir / 'metrics.jsonl'} has no {names.REWARD}: is {run_dir} a run folder?")
    with _figure(png, title, "reward") as (figure, axes):
        for color, (label, points) in zip(_cycle(COLORS), rewards.items(), strict=False):
            _draw_training(axes, points, label, color)
        _finish(figure, axes, [point for points in rewards.values() for point in points])


def _draw_training(axes: "Axes", points: Curve, label: str, color: str) -> None:
    if not points:
        return
    where, values = _columns(points)
    axes.plot(where, values, color=color, linewidth=1, alpha=0.3)
    axes.plot(where, smooth(values), color=color, linewidth=2.4, marker="o" if len(points) == 1 else "", label=label)


def _finish(figure: "Figure", axes: "Axes", rewards: Curve) -> None:
    """Limits, legend below the axes; rewards between 0 and 1 get the whole of that range."""
    from matplotlib.ticker import MaxNLocator

    values = [each for _, each in rewards]
    if values and min(values) >= 0 and max(values) <= 1:
        axes.set_ylim(-0.02, 1.05)
    axes.margins(x=0.02)
    axes.set_xlabel("rollouts")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    handles = [line for each in figure.axes for line in each.get_lines() if not str(line.get_label()).startswith("_")]
    handles.sort(key=lambda line: str(line.get_label()) == "response length")
    labels = [str(line.get_label()) for line in handles]
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, max(1, len(labels))))


@contextmanager
def _figure(png: Path, title: str, ylabel: str) -> "Iterator[tuple[Figure, Axes]]":
    with run_folder_errors(png, "write"):
        png.parent.mkdir(parents=True, exist_ok=True)
        with _matplotlib_folder(png.parent):
            from matplotlib import style
            from matplotlib.figure import Figure
    with style.context(PLOT_STYLE, after_reset=True):
        figure = Figure(figsize=(8.6, 4.9), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(title.replace("$", r"\$"))
        axes.set_ylabel(ylabel)
        yield figure, axes
        draft = png.with_suffix(".tmp")
        with run_folder_errors(png, "write"):
            figure.savefig(draft, format="png", metadata={"Software": None})
            draft.replace(png)


@contextmanager
def _matplotlib_folder(parent: Path) -> Iterator[None]:
    """Keep matplotlib's first import from writing its font cache to the user's home folder."""
    if "MPLCONFIGDIR" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix=".matplotlib-", dir=parent) as folder:
        os.environ["MPLCONFIGDIR"] = folder
        try:
            # The first import of this module reads and writes the font list.
            import matplotlib.font_manager  # noqa: F401

            yield
        finally:
            del os.environ["MPLCONFIGDIR"]


def _columns(points: Curve) -> tuple[list[int], list[float]]:
    return [where for where, _ in points], [value for _, value in points]


def _cycle(colors: Sequence[str]) -> Iterator[str]:
    while True:
        yield from colors
