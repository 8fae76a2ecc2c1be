"""Protection: each reward goes where its spec says, and looks the same to everybody else."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from slime_core.catalog import Catalog, RegisteredChoice
from slime_core.errors import PluginError
from slime_core.processes import OnLoop, Protection, isolation_of
from slime_core.roles import (
    GroupReward,
    GroupRewardSpec,
    Isolation,
    PluginSet,
    RewardContext,
    RewardSpec,
    Settings,
)
from slime_core.sample import Sample
from slime_core.score import Score
from slime_core.stats import PluginStats
from slime_testing import make_sample
from tests.isolation.conftest import CONTEXT, Bench, run
from tests.tables import table


async def awaited(sample: Sample, ctx: RewardContext) -> Score:
    await asyncio.sleep(float(sample.response))
    return Score(1.0)


def plain(sample: Sample, ctx: RewardContext) -> Score:
    return Score(1.0)


class Judge:
    async def __call__(self, sample: Sample, ctx: RewardContext) -> Score:
        return Score(1.0)


@table(
    "made, isolation, expected",
    [
        (awaited, None, Isolation.LOOP),
        (Judge(), None, Isolation.LOOP),
        (plain, None, Isolation.PROCESS),
        (awaited, Isolation.PROCESS, Isolation.PROCESS),
        (None, Isolation.PROCESS, Isolation.PROCESS),
    ],
)
def test_where_a_reward_runs(made: object, isolation: Isolation | None, expected: Isolation) -> None:
    assert isolation_of(RewardSpec("r", lambda: made, isolation=isolation), made) is expected


@table("made, isolation, text", [(plain, Isolation.LOOP, "is a plain `def`"), (3, None, "which cannot be called")])
def test_what_does_not_fit_is_refused(made: object, isolation: Isolation | None, text: str) -> None:
    with pytest.raises(PluginError, match=text):
        isolation_of(RewardSpec("r", lambda: made, isolation=isolation), made)


def on_loop(stats: PluginStats, **limits: object) -> OnLoop[Sample, RewardContext, Score]:
    spec = RewardSpec("waits", lambda settings, setup: awaited, **limits)  # type: ignore[arg-type]
    protection = Protection(plugins=PluginSet(), seed=1, stats=stats)
    registered = RegisteredChoice(spec, "p/waits", "p", "p", "1")
    return protection.protect(registered, Settings(), lambda: awaited, name="waits")  # type: ignore[return-value]


def test_on_the_loop_a_call_has_a_time_limit_and_its_error_passes_through() -> None:
    stats = PluginStats()
    with pytest.raises(TimeoutError, match=r"no answer in 0\.01 s"):
        run(on_loop(stats, timeout_s=0.01)(make_sample("60"), CONTEXT))
    with pytest.raises(ValueError, match="could not convert"):
        run(on_loop(stats)(make_sample("no number"), CONTEXT))
    metrics = stats.take()
    assert metrics["plugin/reward/waits/timeouts"] == metrics["plugin/reward/waits/errors"] == 1.0


def call_on_loop(call: Callable[..., object], timeout_s: float) -> object:
    calls = PluginStats().calls("reward", "r", "p")
    on_loop = OnLoop(call, timeout_s=timeout_s, max_concurrency=None, calls=calls)  # type: ignore[arg-type]
    return run(on_loop(make_sample(), CONTEXT))


def test_a_call_that_swallows_its_cancellation_is_left_behind() -> None:
    async def swallows(sample: Sample, ctx: RewardContext) -> Score:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(600)

    with pytest.raises(TimeoutError, match=r"no answer in 0\.05 s; it ignored its cancellation for 1 s"):
        call_on_loop(swallows, 0.05)


def test_a_call_may_clean_up_after_its_time_is_over() -> None:
    cleaned: list[bool] = []

    async def tidy(sample: Sample, ctx: RewardContext) -> Score:
        try:
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(0.05)
            cleaned.append(True)
        return Score(1.0)

    with pytest.raises(TimeoutError, match=r"no answer in 0\.05 s$"):
        call_on_loop(tidy, 0.05)
    assert cleaned == [True]


def test_cancelling_from_outside_is_no_time_out() -> None:
    async def cancel() -> None:
        task = asyncio.ensure_future(on_loop(PluginStats(), timeout_s=60.0)(make_sample("600"), CONTEXT))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancel())


@table("error", [SystemExit(3), KeyboardInterrupt(), BaseExceptionGroup("two", [SystemExit()])])
def test_what_would_end_the_loop_costs_the_call_only(error: BaseException) -> None:
    async def exits(sample: Sample, ctx: RewardContext) -> Score:
        await asyncio.sleep(0)
        raise error

    with pytest.raises(PluginError, match=f"it raised {type(error).__name__}"):
        call_on_loop(exits, 5.0)


def test_a_plugin_of_a_distribution_is_built_in_a_worker_by_its_name() -> None:
    catalog = Catalog.discover()
    stats = PluginStats()
    protection = Protection(plugins=catalog.plugin_set, seed=1, stats=stats)
    found = catalog.find("reward", "slime-reward-math/math")
    apart = replace(found, spec=replace(found.spec, isolation=Isolation.PROCESS))
    reward = protection.protect(apart, Settings(), lambda: None, name="math")
    assert run(reward(make_sample(r"\boxed{4}", "4"), CONTEXT)).value == 1.0  # type: ignore[operator]
    protection.close()


def test_on_the_loop_calls_at_once_are_limited_and_waiting_is_not_charged() -> None:
    """Six calls of 0.2 s, two at once: the last two wait 0.4 s, and have 0.35 s for themselves."""
    reward = on_loop(PluginStats(), max_concurrency=2, timeout_s=0.35)

    async def six() -> float:
        began = time.monotonic()
        await asyncio.gather(*(reward(make_sample("0.2"), CONTEXT) for _ in range(6)))
        return time.monotonic() - began

    assert run(six()) > 0.5


GROUP = """
from slime_core import Score, Settings, Unscored
from slime_core.roles import GroupRewardSpec
from pydantic import SecretStr

class Key(Settings):
    key: SecretStr
    floor: float = 0.5

class Longest:
    def __init__(self, settings, setup):
        self.settings = settings
    def __call__(self, samples, ctx):
        if self.settings.key.get_secret_value() != "open sesame":
            return [Unscored("locked") for sample in samples]
        longest = max(sample.response_length for sample in samples)
        return [Score(1.0 if sample.response_length == longest else self.settings.floor) for sample in samples]

longest = GroupRewardSpec("longest", Longest, Key)

def too_few(samples, ctx):
    return [Score(1.0)]

def length(sample, ctx):
    return Score(float(len(sample.response)))

class Half:
    def __init__(self, settings, setup):
        self.inner = setup.make("reward", "./group.py:length")
    async def __call__(self, sample, ctx):
        return Score((await self.inner(sample, ctx)).value / 2)

class HalfElsewhere(Half):
    pass

from slime_core import RewardSpec
from slime_core.roles import Isolation
elsewhere = RewardSpec("elsewhere", HalfElsewhere, isolation=Isolation.PROCESS)
"""


def test_a_group_reward_in_a_process_scores_in_order_and_gets_its_settings(
    shared: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shared.root / "group.py").write_text(GROUP)
    monkeypatch.setenv("GROUP_KEY", "open sesame")
    settings = {"key": "$env:GROUP_KEY", "floor": 0.25}
    reward = shared.choice("group_reward", "./group.py:longest", **settings)
    assert isinstance(reward, GroupReward)
    samples = [make_sample("x" * size, index=size) for size in (2, 3, 1)]
    assert run(reward(samples, CONTEXT)) == [Score(0.25), Score(1.0), Score(0.25)]


def test_a_group_reward_that_fails_leaves_every_sample_of_the_group_unscored(shared: Bench) -> None:
    (shared.root / "group.py").write_text(GROUP)
    reward = shared.choice("group_reward", "./group.py:too_few")
    verdicts = run(reward([make_sample(), make_sample()], CONTEXT))  # type: ignore[operator]
    assert [verdict.reason for verdict in verdicts] == ["contract", "contract"]


@table("name", ["Half", "elsewhere"])
def test_a_wrapped_reward_may_be_awaited_wherever_the_wrapper_runs(shared: Bench, name: str) -> None:
    (shared.root / "group.py").write_text(GROUP)
    assert shared.ask(name, file="group.py", sample=make_sample("four")) == Score(2.0)


def test_a_spec_that_says_process_is_built_in_workers_only(shared: Bench) -> None:
    def build() -> object:
        raise AssertionError("called in the driver")

    spec = GroupRewardSpec("heavy", build, isolation=Isolation.PROCESS)  # type: ignore[arg-type]
    registered = RegisteredChoice(spec, "p/heavy", "p", "p", "1")
    assert callable(shared.protection.protect(registered, Settings(), build, name="heavy"))
