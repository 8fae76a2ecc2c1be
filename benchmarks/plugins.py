"""What plugins cost: commands with 50 of them installed, the contract kit, and the dispatch of hooks.

    python benchmarks/plugins.py

Commands are measured in processor seconds of the whole process, user and system, against `python -c pass`, in turns,
and the median counts; the kit is measured on one of the 50. Dispatch is `RunHooks.emit` against awaiting the watcher
itself. The rollout is a real one of 10,000 samples over an engine that answers at once, the hardest case for
dispatch: every second that a model would take is left out. Its share of dispatch is that of the events which a
rollout emits, once a wave, and what it would be if every single sample emitted one. The last line printed is one JSON
object.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from slime_core.catalog import Catalog
from slime_core.events import Event, SamplesDone
from slime_core.roles import (
    FinishReason,
    GenerateOutput,
    GenerateRequest,
    PluginSet,
    RewardContext,
    SamplingParams,
    WeightChannel,
)
from slime_core.rollout import (
    Choices,
    Parts,
    RolloutPolicy,
    Scoring,
    SingleTurn,
    SyncScheduler,
    UsedGenerator,
    UsedReward,
)
from slime_core.run.watching import RunHooks
from slime_core.sample import Group, GroupId, Json, Sample
from slime_core.score import Score, Verdict
from slime_core.stats import PluginStats
from slime_testing import CharTokenizer, write_distribution

PLUGINS = 50
SAMPLES, GROUP = 10_000, 8
EMITS = 20_000
LIMIT_CPU_S, LIMIT_EMIT_US, LIMIT_SHARE, LIMIT_KIT_CPU_S = 0.3, 5.0, 0.01, 5.0
PLUGIN = '''"""One of many plugins."""

from slime_core import RewardSpec, Score, Unscored, hookimpl

SLIME_API = "1"


async def same(sample, ctx):
    if not isinstance(sample.label, str):
        return Unscored("no label")
    return Score(float(sample.response == sample.label))


@hookimpl
def slime_rewards():
    yield RewardSpec.from_function("same", same, summary="1.0 for the label itself")


@hookimpl
def slime_run_end(event):
    pass
'''
WATCHER = """from slime_core import hookimpl

SLIME_API = "1"


@hookimpl
def slime_samples_done(event):
    pass


@hookimpl
def slime_groups_done(event):
    pass
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=15, help="times that each command is run")
    repeat: int = parser.parse_args().repeat
    with tempfile.TemporaryDirectory() as folder:
        found = {
            **measure_commands(Path(folder), repeat),
            **measure_kit(Path(folder)),
            **asyncio.run(measure_dispatch(Path(folder))),
        }
    found["kept"] = (
        found["list_cpu_s"] < LIMIT_CPU_S
        and found["help_cpu_s"] < LIMIT_CPU_S
        and found["kit_cpu_s"] < LIMIT_KIT_CPU_S
        and found["emit_1_us"] <= LIMIT_EMIT_US
        and found["dispatch_share"] <= LIMIT_SHARE
    )
    print(json.dumps(found))


def measure_commands(folder: Path, repeat: int) -> dict[str, float]:
    """Processor seconds of commands with 50 plugins installed."""
    site = folder / "site"
    for number in range(PLUGINS):
        write_plugin(site, number)
    environment = {**os.environ, "PYTHONPATH": str(site)}
    slime = [sys.executable, "-m", "slime_core"]
    listing = [*slime, "plugins", "list", "--json"]
    loading = [*listing, "--load"]
    shown = json.loads(subprocess.run(loading, env=environment, capture_output=True, check=True).stdout)
    loaded = [each for each in shown["plugins"] if each["plugin"].startswith("slime-reward-many-") and each["choices"]]
    assert len(loaded) == PLUGINS, f"{len(loaded)} of {PLUGINS} plugins are known"
    commands = {
        "bare": [sys.executable, "-c", "pass"],
        "help": [*slime, "--help"],
        "list": listing,
        "list_loading_all": loading,
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(repeat):
        for name, command in commands.items():
            times[name].append(cpu_of(command, environment))
    return {f"{name}_cpu_s": round(statistics.median(those), 4) for name, those in times.items()}


def measure_kit(folder: Path) -> dict[str, float]:
    """Processor seconds of `slime plugins check` of one of the plugins: one reward and one run hook."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "site")}
    command = [sys.executable, "-m", "slime_core", "plugins", "check", "slime-reward-many-0"]
    return {"kit_cpu_s": round(statistics.median(cpu_of(command, environment) for _ in range(3)), 4)}


def write_plugin(site: Path, number: int) -> None:
    """One installed distribution, with the RECORD that pip writes."""
    name, module = f"slime-reward-many-{number}", f"slime_reward_many_{number}"
    write_distribution(
        site, name, {f"{module}.py": PLUGIN}, entry_points={f"reward-many-{number}": module}, readme="`same`"
    )
    info = site / f"{module}-1.0.dist-info"
    files = [f"{module}.py", *(f"{info.name}/{file}" for file in ("METADATA", "entry_points.txt"))]
    lines = [f"{file},sha256=0,{(site / file).stat().st_size}\n" for file in files]
    (info / "RECORD").write_text("".join([*lines, f"{info.name}/RECORD,,\n"]))


def cpu_of(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """User and system seconds of one process."""
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, f"{command} ended with {child.returncode}"
    return usage.ru_utime + usage.ru_stime


async def measure_dispatch(folder: Path) -> dict[str, float]:
    """Microseconds of an emit with 0, 1 and 10 watchers, and its share of a rollout."""
    event = SamplesDone(rollout_id=0, samples=(), evaluation=False)
    emits = {count: hooks_of(folder, count) for count in (0, 1, 10)}

    async def bare(event: Event) -> None:
        pass

    calls: dict[str, Callable[[Event], Awaitable[None]]] = {"bare": bare}
    calls |= {f"emit_{count}": hooks.emit for count, hooks in emits.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(7):
        for name, call in calls.items():
            began = time.process_time()
            for _ in range(EMITS):
                await call(event)
            times[name].append((time.process_time() - began) / EMITS * 1e6)
    found = {f"{name}_us": round(statistics.median(those), 3) for name, those in times.items()}
    dispatch_s, rollout_s = await run_rollout(emits[10])
    return {
        **found,
        "rollout_samples": SAMPLES,
        "rollout_s": round(rollout_s, 3),
        "dispatch_share": round(dispatch_s / rollout_s, 6),
        "dispatch_share_if_every_sample_emitted": round(SAMPLES * found["emit_1_us"] / 1e6 / rollout_s, 6),
    }


def hooks_of(folder: Path, count: int) -> RunHooks:
    """The hooks of this many watchers, each a plugin of its own, and of nothing else."""
    files = [folder / f"watcher_{count}_{number}.py" for number in range(count)]
    for file in files:
        file.write_text(WATCHER)
    return RunHooks(Catalog.discover(PluginSet(only=(), modules=tuple(map(str, files)))), PluginStats())


async def run_rollout(hooks: RunHooks) -> tuple[float, float]:
    """Processor seconds in `emit` with 10 watchers, and of a whole rollout of 10,000 samples."""
    dispatch = 0.0

    async def emit(event: Event) -> None:
        nonlocal dispatch
        began = time.process_time()
        await hooks.emit(event)
        dispatch += time.process_time() - began

    async def always(sample: Sample, ctx: RewardContext) -> Verdict:
        return Score(float(sample.index or 0))

    parts = Parts(
        policy=RolloutPolicy(seed=1, sampling=SamplingParams(8)),
        source=Prompts(),
        engine=AtOnce(),
        tokenizer=CharTokenizer(),
        choices=Choices(
            UsedGenerator("single_turn", "benchmark", SingleTurn()),
            Scoring([UsedReward("always", "benchmark", always)]),
        ),
        group_filter=None,
        sample_filters=(),
        emit=emit,
    )
    scheduler = SyncScheduler(parts)
    began = time.process_time()
    result = await scheduler.collect(rollout_id=0, want=SAMPLES // GROUP)
    seconds = time.process_time() - began
    assert sum(len(group.samples) for group in result.kept) == SAMPLES
    return dispatch, seconds


class AtOnce:
    """An engine that answers at once."""

    async def start(self) -> None: ...

    async def load_weights(self, channel: WeightChannel, version: int) -> None: ...

    async def abort(self) -> None: ...

    async def close(self) -> None: ...

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """Two tokens."""
        return GenerateOutput([97, 0], [-0.5, -0.5], FinishReason.STOP, weight_version=0)


class Prompts:
    """A data source of short prompts."""

    def __init__(self) -> None:
        self.drawn = 0

    async def draw(self, count: int) -> list[Group]:
        """New groups."""
        self.drawn += count
        return [self._group(number) for number in range(self.drawn - count, self.drawn)]

    def _group(self, number: int) -> Group:
        samples = [
            Sample(number, index, number * GROUP + index, prompt=f"{number} + 1 =", source="sums")
            for index in range(GROUP)
        ]
        return Group(GroupId("sums", 0, number, number), samples)

    def add(self, groups: Sequence[Group]) -> None:
        """Nothing comes back."""
        assert not groups

    def state_dict(self) -> dict[str, Json]:
        """Nothing is saved."""
        raise NotImplementedError

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Nothing is restored."""
        raise NotImplementedError

    def __len__(self) -> int:
        return SAMPLES


if __name__ == "__main__":
    main()
