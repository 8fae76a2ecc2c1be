"""How busy 1,000 engines are under each rollout policy: the scheduler's own code on a virtual clock.

    python benchmarks/rollout_policies.py
    python benchmarks/rollout_policies.py --quick                                   # 50 engines
    python benchmarks/rollout_policies.py --plot docs/assets/rollout-policies.png

Lengths are log-normal with σ 1.0 and 0.5, a training step takes 1.0 and 0.5 of the time that the full fleet takes for a
batch, and nothing trained is more than two versions old. Utilisation counts tokens that are trained on, over what the
full fleet could have decoded meanwhile. Beside the policies of a run there are slime's barrier (`sync`); its
over-sampling, which draws half as much again, takes the first groups that finish, aborts the rest and throws it away
(`discard`, here); APRIL's, which goes on with the rest later (`april`: `sync` with partial rollouts); and an oracle
that has no scheduling to do: a step takes the longer of training and decoding. The last line is one JSON object.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from slime_core.aio import cancel_all
from slime_core.roles import FilterContext
from slime_core.rollout import Parts, RolloutResult, Scheduler
from slime_core.rollout.metrics import RolloutStats
from slime_core.rollout.runner import GroupProgress, Purpose
from slime_core.sample import Group
from slime_simulate import FleetShape, Lengths, Scenario, simulate

SLOTS, ROUNDS, GROUP = 4, 8, 8
WARM_UP, STEPS = 4, 8
"""Steps before and while it is measured: over few, what was decoded before and is trained on meanwhile shows."""
STALENESS, OVER_SAMPLING = 2, 1.5
SIGMAS, TRAIN_TIMES, FRONTIER = (1.0, 0.5), (1.0, 0.5), range(5)
LIMIT, GOAL, FLAT = 0.90, 0.95, 1.25
COLOURS = {
    "sync": "tab:red",
    "discard": "tab:orange",
    "april": "tab:green",
    "async": "tab:purple",
    "continuous": "tab:blue",
}
Row: TypeAlias = Mapping[str, str | float]
Make = Callable[[Parts, Scenario], Scheduler]


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to schedule."""

    rollout_policy: str
    """Of the scenario."""
    partial_rollout: bool = False
    """Of the scenario."""
    make: Make | None = None
    """Another scheduler than the policy's."""


class Discard(Scheduler):
    """slime's over-sampling: the first groups to finish are the batch, and the rest is thrown away."""

    async def collect(self, rollout_id: int, want: int) -> RolloutResult:
        """Draw half as much again as is wanted, and take what finishes first."""
        finished: list[GroupProgress] = []
        enough = asyncio.Event()

        async def one(group: Group) -> None:
            finished.extend(await self.runner.run_groups([group], Purpose(rollout_id, False, self.policy.sampling)))
            if len(finished) >= want:
                enough.set()

        drawn = await self._source.draw(round(OVER_SAMPLING * want))
        tasks = [asyncio.create_task(one(group)) for group in drawn]
        await enough.wait()
        stats = RolloutStats(f"rollout {rollout_id}")
        self.filter_groups(finished[:want], FilterContext(rollout_id), stats, want)
        await cancel_all(tasks)
        return RolloutResult(stats.kept, [], {}, {})


CONTENDERS = {
    "sync": Contender("sync"),
    "discard": Contender("sync", make=lambda parts, scenario: Discard(parts)),
    "april": Contender("sync", partial_rollout=True),
    "async": Contender("async"),
    "continuous": Contender("continuous"),
}


def main() -> None:
    """Simulate and print."""
    options = _options()
    engines = 50 if options.quick else 1000
    rows: list[Row] = []
    for sigma in SIGMAS:
        for train_time in TRAIN_TIMES:
            base = scenario(engines, sigma, train_time)
            print(f"\nσ {sigma:g}, training {train_time:g} of a batch's decoding, {engines} engines")
            print(f"{'':>12} utilisation  step  discarded  staleness: mean, most  length bias  µs an event")
            for name in (*CONTENDERS, "oracle"):
                row: Row = {
                    "policy": name,
                    **(_oracle(base) if name == "oracle" else _simulated(base, CONTENDERS[name])),
                }
                rows.append({"sigma": sigma, "train_time": train_time, **row})
                print(_line(row), flush=True)
    frontier = _frontier(min(engines, 100))
    costs = {str(count): _cost(count) for count in (10, 100, 50 if options.quick else 1000)}
    if options.plot:
        plot(options.plot, rows, frontier)
    print(json.dumps({"engines": engines, "rows": rows, "frontier": frontier, **_verdict(rows, costs)}))


def scenario(engines: int, sigma: float, train_time: float) -> Scenario:
    """The fleet under one load."""
    return Scenario(
        fleet=FleetShape(engines=engines, slots=SLOTS),
        lengths=Lengths(sigma=sigma),
        batch=engines * SLOTS * ROUNDS // GROUP,
        n_samples_per_prompt=GROUP,
        train_time=train_time,
        max_staleness=STALENESS,
        over_sampling=OVER_SAMPLING,
        warm_up=WARM_UP,
        steps=STEPS,
    )


def _simulated(base: Scenario, contender: Contender) -> dict[str, float]:
    chosen = replace(base, rollout_policy=contender.rollout_policy, partial_rollout=contender.partial_rollout)
    figures = simulate(chosen, contender.make).to_dict()
    return {key: value for key, value in figures.items() if isinstance(value, float | int)}


def _oracle(base: Scenario) -> dict[str, float]:
    tokens = _mean_length(base) / base.lengths.mean
    step = max(base.train_time, tokens)
    return {"utilisation": tokens / step, "step_time": step}


def _mean_length(base: Scenario) -> float:
    """Of the responses of the measured steps, as they are: those over the budget are cut."""
    step = base.batch * base.n_samples_per_prompt
    numbers = range(step * base.warm_up, step * (base.warm_up + base.steps))
    return sum(base.lengths.of(base.seed, number) for number in numbers) / len(numbers)


def _line(row: Row) -> str:
    shown = f"{row['policy']:>12} {row['utilisation']:11.3f} {row['step_time']:5.2f}"
    if "discarded" not in row:
        return shown
    return (
        f"{shown} {row['discarded']:10.1%} {row['mean_staleness']:16.2f} {row['max_staleness']:5} "
        f"{row['length_bias']:+12.1%} {row['us_per_event']:12.1f}"
    )


def _frontier(engines: int) -> list[dict[str, float]]:
    """`continuous` under every bound on staleness."""
    found = []
    for sigma in SIGMAS:
        for train_time in TRAIN_TIMES:
            for bound in FRONTIER:
                base = replace(scenario(engines, sigma, train_time), max_staleness=bound, warm_up=8, steps=24)
                figures = simulate(base)
                found.append(
                    {
                        "sigma": sigma,
                        "train_time": train_time,
                        "max_staleness": bound,
                        "utilisation": figures.utilisation,
                        "mean_staleness": figures.mean_staleness,
                        "length_bias": figures.length_bias,
                    }
                )
    return found


def _cost(engines: int) -> float:
    """Microseconds of an event of `continuous`, the best of three where the fleet is small."""
    rounds = 3 if engines < 1000 else 1
    return min(simulate(scenario(engines, 1.0, 1.0)).us_per_event for _ in range(rounds))


def _verdict(rows: Sequence[Row], costs: dict[str, float]) -> dict[str, object]:
    ours = [row for row in rows if row["policy"] == "continuous"]
    least = min(float(row["utilisation"]) for row in ours)
    discarded = max(float(row["discarded"]) for row in ours)
    smallest, *_, largest = costs.values()
    return {
        "us_per_event": costs,
        "largest_to_smallest": largest / smallest,
        "least_utilisation": least,
        "within_limit": least >= LIMIT and discarded == 0.0,
        "within_goal": least >= GOAL and discarded == 0.0,
        "flat": largest / smallest <= FLAT,
    }


def plot(path: Path, rows: Sequence[Row], frontier: Sequence[dict[str, float]]) -> None:
    """Utilisation against the bound on staleness, and against length bias."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), sharey=True)
    for sigma in SIGMAS:
        for train_time in TRAIN_TIMES:
            line = [each for each in frontier if (each["sigma"], each["train_time"]) == (sigma, train_time)]
            left.plot(
                [each["max_staleness"] for each in line],
                [each["utilisation"] for each in line],
                marker="o",
                linestyle="-" if train_time == TRAIN_TIMES[0] else "--",
                color="tab:blue" if sigma == SIGMAS[0] else "tab:cyan",
                label=f"continuous, σ {sigma:g}, training {train_time:g}",
            )
    for row in rows:
        if (row["sigma"], row["train_time"]) != (SIGMAS[0], TRAIN_TIMES[0]):
            continue
        if row["policy"] == "oracle":
            for axes in (left, right):
                axes.axhline(float(row["utilisation"]), color="grey", linestyle=":", label="oracle, σ 1, training 1")
            continue
        style = {"color": COLOURS[str(row["policy"])], "marker": "X", "s": 70, "zorder": 3}
        right.scatter(100 * float(row["length_bias"]), row["utilisation"], label=row["policy"], **style)
        if row["policy"] != "continuous":
            left.scatter(row["max_staleness"], row["utilisation"], label=f"{row['policy']}, σ 1, training 1", **style)
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7, loc="lower right" if axes is left else "center left")
    left.set(xlabel="most versions behind", ylabel="useful utilisation", ylim=(0, 1.05), xticks=list(FRONTIER))
    right.set(xlabel="length bias of what is trained on, %, σ 1, training 1")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    print(f"drew {path}", file=sys.stderr)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="50 engines instead of 1,000")
    parser.add_argument("--plot", type=Path, metavar="PATH", help="draw the frontier")
    return parser.parse_args()


if __name__ == "__main__":
    main()
