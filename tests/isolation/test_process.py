"""Rewards in worker processes: a failure costs that call only."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slime_core.errors import PluginError
from slime_core.processes import CallFailure, check_label
from slime_core.processes import limits as tree
from slime_core.score import Score, Unscored, Verdict
from slime_testing import make_sample
from tests.isolation.conftest import CONTEXT, Bench, is_running, run
from tests.tables import table


def wait_until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def unscored(verdict: Verdict) -> Unscored:
    assert isinstance(verdict, Unscored), verdict
    return verdict


def test_a_plain_def_is_scored_in_a_process_with_the_fields_that_it_names(shared: Bench) -> None:
    sample = make_sample("four")
    before = sample.to_dict()
    assert run(shared.reward("length_spec")(sample, CONTEXT)) == Score(4.0, {"seed": 7.0})
    assert shared.ask("reads_tokens_declared") == Score(5.0)
    assert shared.ask("changes_its_sample_spec", sample=sample) == Score(1.0)
    assert sample.to_dict() == before
    assert shared.stats.take()["plugin/reward/length_spec/errors"] == 0.0


@pytest.mark.timeout(120)
@table("way", ["spins_in_c", "swallows"])
def test_one_that_never_answers_is_killed_and_may_be_retried(shared: Bench, way: str) -> None:
    verdict = unscored(shared.ask(f"{way}_spec"))
    assert (verdict.reason, verdict.retryable) == ("timeout", True)
    assert "no answer in 0.4 s" in verdict.detail
    assert shared.stats.take()[f"plugin/reward/{way}_spec/timeouts"] == 1.0


@pytest.mark.timeout(120)
@table(
    "way, reason, text",
    [
        ("exits", "died", "exit code 7\nit printed:\nabout to exit"),
        ("says_exit", "SystemExit", "enough"),
        ("kills_itself", "memory", "SIGKILL, possibly out of memory"),
        ("eats_memory", "memory", "more memory than its spec allows"),
        ("shares_memory", "memory", "MiB of 256"),
        ("child_eats_memory", "memory", "MiB of 256"),
        ("forks_without_end", "processes", ""),
        ("shell_bomb", "processes", "more than 64 processes"),
        ("prints_and_fails", "ValueError", "it printed:\nthe last words"),
        ("answers_at_length", "output", "1048576 are allowed"),
        ("reads_tokens", "contract", "fields=(*LIGHT_FIELDS, 'tokens')"),
        ("returns_none", "contract", "expected a finite number, Score, Unscored or NotApplicable, got NoneType"),
    ],
)
def test_a_failure_costs_that_call_only(shared: Bench, way: str, reason: str, text: str) -> None:
    verdict = unscored(shared.ask(f"{way}_spec"))
    assert verdict.reason == reason, verdict
    assert text in verdict.detail
    assert not verdict.retryable
    assert shared.stats.take()[f"plugin/reward/{way}_spec/errors"] == 1.0


@table(
    "way, values",
    [
        ("prints", [2.0, 2.0, 2.0]),
        ("forks_and_both_return", [1.0, 1.0, 1.0]),
        ("sets_an_alarm", [1.0, 1.0, 1.0]),
        ("awaits", [5.0, 5.0, 5.0]),
        ("counts", [1.0, 2.0, 3.0]),
    ],
)
def test_a_worker_is_kept_from_call_to_call_and_from_loop_to_loop(shared: Bench, way: str, values: list[float]) -> None:
    reward = shared.reward(f"{way}_spec")
    assert [run(reward(make_sample(), CONTEXT)) for _ in range(3)] == list(map(Score, values))


def test_a_dead_worker_is_replaced(shared: Bench) -> None:
    reward = shared.reward("dies_at_one_spec")
    verdicts = [run(reward(make_sample("x" * size), CONTEXT)) for size in (0, 1, 2)]
    assert (verdicts[0], verdicts[2]) == (Score(0.0), Score(2.0))
    assert unscored(verdicts[1]).reason == "died"


@table("way", ["writes_to_every_descriptor", "closes_every_descriptor"])
def test_meddling_with_the_connection_fails_that_call(shared: Bench, way: str) -> None:
    reward = shared.reward(f"{way}_spec")
    verdicts = [run(reward(make_sample(), CONTEXT)) for _ in range(2)]
    assert {unscored(verdict).reason for verdict in verdicts} <= {"died", "contract", "memory"}


def test_an_idle_worker_that_died_is_replaced_without_a_word(bench: Bench) -> None:
    reward = bench.reward("counts_spec")
    run(reward(make_sample(), CONTEXT))
    (worker,) = children()
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: not is_running(worker))
    assert run(reward(make_sample(), CONTEXT)) == Score(1.0)


def test_calls_at_once_are_shared_among_workers(bench: Bench) -> None:
    reward = bench.reward("many_spec")

    async def together() -> list[Verdict]:
        return await asyncio.gather(*(reward(make_sample("x" * size), CONTEXT) for size in range(50)))

    assert run(together()) == [Score(float(size), {"seed": 7.0}) for size in range(50)]
    assert len(children()) == 2


def test_cancelling_a_call_ends_its_worker(bench: Bench) -> None:
    reward = bench.reward("sleeps_spec")

    async def cancel() -> None:
        task = asyncio.ensure_future(reward(make_sample(), CONTEXT))
        await asyncio.to_thread(wait_until, lambda: bool(children()))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(cancel())
    wait_until(lambda: not any(map(is_running, children())))


def test_closing_in_the_middle_of_a_call_ends_the_call(bench: Bench) -> None:
    reward = bench.reward("sleeps_spec")

    async def close() -> Verdict:
        task = asyncio.ensure_future(reward(make_sample(), CONTEXT))
        await asyncio.to_thread(wait_until, lambda: bool(children()))
        await bench.protection.start()
        bench.protection.close()
        return await task

    assert unscored(run(close())).reason in ("killed", "timeout", "closed")
    assert unscored(run(reward(make_sample(), CONTEXT))).reason == "closed"
    assert not children()


def test_a_module_that_a_worker_cannot_import_ends_the_run_with_what_it_printed(bench: Bench) -> None:
    """It can be imported in the driver and not in a worker, where a package or a device may be missing."""
    text = (
        "import os\nprint('looking for the model')\n"
        f"assert os.getpid() == {os.getpid()}, 'no model here'\n"
        "def grade(sample, ctx): ...\n"
        "from slime_core import RewardSpec\ngrade_spec = RewardSpec.from_function('grade', grade)\n"
    )
    (bench.root / "heavy.py").write_text(text)
    bench.reward("grade_spec", file="heavy.py")
    for _ in range(2):
        with pytest.raises(PluginError) as caught:
            run(bench.protection.start())
        for said in ("reward ./heavy.py:grade_spec", "no model here", "looking for the model"):
            assert said in str(caught.value)


def children(of: int | None = None) -> list[int]:
    """Running workers of a process, forked by its server."""
    servers = [each for each in tree.children(of or os.getpid()) if "processes.worker" in command(each)]
    found = [worker for server in servers for worker in tree.children(server) if is_running(worker)]
    return [worker for worker in found if worker not in OTHERS]


OTHERS: set[int] = set()
"""Workers that another test has left to its module."""


@pytest.fixture(autouse=True)
def _before() -> None:
    OTHERS.clear()
    OTHERS.update(children())


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


HANGS = """
import time
from pathlib import Path

from slime_core import RewardSpec


class Hangs:
    def __call__(self, sample, ctx):
        return 1.0

    def check_label(self, sample):
        Path("began").touch()
        time.sleep(60)


hangs = RewardSpec("hangs", lambda settings, setup: Hangs(), timeout_s=30.0)
"""


def test_a_label_check_ends_with_the_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bench.root)
    (bench.root / "hangs.py").write_text(HANGS)
    reward, began = bench.reward("hangs", "hangs.py"), time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        check = pool.submit(check_label, reward, make_sample())
        wait_until((bench.root / "began").exists)
        bench.protection.close()
    with pytest.raises(CallFailure, match="it was closed"):
        check.result()
    with pytest.raises(CallFailure, match="the run is over"):
        check_label(reward, make_sample())
    assert time.monotonic() - began < 25
