"""BestEffort: whatever a watcher does, the run goes on; it is told once, counted, and given up when it only hangs."""

import asyncio
import logging

import pytest

from slime_core.errors import StopRun
from slime_core.run.watching import MOST_TIMEOUTS, BestEffort


def called(watching: BestEffort, *functions: object, name: str = "slime-x/hook") -> list[BaseException | None]:
    async def go() -> list[BaseException | None]:
        return [await watching.call(name, function) for function in functions]  # type: ignore[arg-type]

    return asyncio.run(go())


def works() -> str:
    return "done"


async def works_later() -> None:
    await asyncio.sleep(0)


def raises() -> None:
    raise OSError("no disk")


async def raises_later() -> None:
    await asyncio.sleep(0)
    raise KeyError("x")


async def hangs() -> None:
    await asyncio.Event().wait()


def test_arguments_are_passed_on_and_what_works_is_no_error() -> None:
    watching, seen = BestEffort("run hook", limit_s=60.0), list[object]()

    async def go() -> None:
        assert await watching.call("x", lambda *given, **named: seen.append((given, named)), 1, two=2) is None

    asyncio.run(go())
    assert seen == [((1,), {"two": 2})]
    assert called(watching, works, works_later) == [None, None]
    assert watching.errors == {}


def test_what_fails_is_returned_counted_by_its_kind_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    watching = BestEffort("run hook", limit_s=60.0)
    found = called(watching, raises, raises, raises_later)
    assert [type(each) for each in found] == [OSError, OSError, KeyError]
    assert watching.errors == {"slime-x/hook/OSError": 2, "slime-x/hook/KeyError": 1}
    said = [record.getMessage().splitlines()[0] for record in caplog.records]
    assert [each.partition(": ")[0] for each in said] == [
        "run hook slime-x/hook/OSError",
        "run hook slime-x/hook/KeyError",
    ]
    assert all("(logged once; the run goes on)" in each for each in said)
    assert "no disk" in said[0]


def test_not_even_an_exit_ends_the_run() -> None:
    def leaves() -> None:
        raise SystemExit(3)

    watching = BestEffort("run hook", limit_s=60.0)
    (found,) = called(watching, leaves)
    assert isinstance(found, SystemExit)
    assert watching.errors == {"slime-x/hook/SystemExit": 1}


def test_it_may_say_that_the_run_is_to_stop() -> None:
    def stops() -> None:
        raise StopRun("enough")

    watching = BestEffort("run hook", limit_s=60.0)
    with pytest.raises(StopRun, match="enough"):
        called(watching, stops)
    assert watching.errors == {}


def test_what_hangs_costs_its_limit_so_many_times_and_is_called_no_more(caplog: pytest.LogCaptureFixture) -> None:
    watching, calls = BestEffort("run hook", limit_s=0.01), list[int]()

    async def hangs_and_counts() -> None:
        calls.append(1)
        await hangs()

    found = called(watching, *[hangs_and_counts] * (MOST_TIMEOUTS + 2))
    assert [type(each) for each in found] == [TimeoutError] * MOST_TIMEOUTS + [type(None)] * 2
    assert len(calls) == MOST_TIMEOUTS
    assert watching.errors == {"slime-x/hook/TimeoutError": MOST_TIMEOUTS}
    with caplog.at_level(logging.ERROR):
        assert called(watching, raises) == [None]  # by whatever function it is called
        assert isinstance(called(watching, raises, name="slime-x/other")[0], OSError)
    given_up = [record.getMessage() for record in caplog.records if "given up" in record.getMessage()]
    assert given_up == ["run hook slime-x/hook: given up after 3 time-outs; it is called no more"]


def test_errors_of_its_own_do_not_give_it_up() -> None:
    watching = BestEffort("run hook", limit_s=60.0)
    assert [type(each) for each in called(watching, *[raises] * 9)] == [OSError] * 9


def test_who_cancels_the_run_is_obeyed_and_a_cancellation_of_its_own_is_an_error() -> None:
    watching = BestEffort("run hook", limit_s=60.0)

    async def cancels_itself() -> None:
        raise asyncio.CancelledError

    assert [type(each) for each in called(watching, cancels_itself)] == [asyncio.CancelledError]

    async def go() -> None:
        task = asyncio.create_task(watching.call("x", hangs))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert watching.errors == {"slime-x/hook/CancelledError": 1}
