"""The samples in flight: what each waits for, and the report when none has ended for long."""

import asyncio
import re
import time
from collections.abc import Sequence

from slime_core.roles import GenerateOutput, GenerateRequest
from slime_core.rollout import StallReporter
from slime_core.rollout.calls import MAX_MARKS, SamplesInFlight, set_engine, set_wait
from slime_core.sample import GroupId
from tests.rollout.bench import ScriptedEngine, make_bench, output_of


def test_the_one_sample_of_512_that_hangs_is_named_and_the_step_completes() -> None:
    async def answer(request: GenerateRequest) -> GenerateOutput:
        if request.prompt[0] == 1005 and len(stuck) < 1:
            stuck.append(request)
            set_engine("engine 2")
            await asyncio.Event().wait()
        return output_of(request)

    stuck: list[GenerateRequest] = []
    reports: list[str] = []
    bench = make_bench(engine=ScriptedEngine(answer), n=8, sample_timeout_s=4.0)

    async def main() -> int:
        with StallReporter(bench.scheduler.runner.in_flight, reports.append, first_s=0.1):
            return len((await bench.scheduler.collect(0, 64)).kept)

    assert asyncio.run(main()) == 64
    last = re.sub(r"\d+ s\b", "N s", reports[-1])
    assert last == (
        "no sample ended for N s; waiting for engine: 1 sample: "
        "sample 0 of group numbers:e0:r5:d5, N s in engine 2 (generator scripted)"
    )
    assert len(reports) <= 6, "after 0.1 s, and again after twice as long"


def test_reports_name_the_longest_waits_of_samples_with_a_slot() -> None:
    in_flight = SamplesInFlight()

    async def sample(index: int, what: str) -> None:
        with in_flight.track(GroupId("x", 0, 1, 1), index):
            set_wait(what)
            await asyncio.sleep(0.2)

    async def main() -> tuple[int, list[str]]:
        tasks = []
        for index, what in enumerate(["a free slot", "reward math", "engine"]):
            tasks.append(asyncio.create_task(sample(index, what)))
            await asyncio.sleep(0.01)
        seen = len(in_flight.running), [each.label(time.monotonic()) for each in in_flight.running]
        await asyncio.gather(*tasks)
        return seen

    count, named = asyncio.run(main())
    assert count == 2
    assert named == ["sample 1 of group x:e0:r1:d1, 0 s in reward math", "sample 2 of group x:e0:r1:d1, 0 s in engine"]
    assert (in_flight.running, in_flight.ended, in_flight.text) == ([], 3, "nothing")


def test_no_report_while_samples_end_or_none_is_in_flight() -> None:
    in_flight, reports = SamplesInFlight(), list[str]()

    async def sample() -> None:
        with in_flight.track(GroupId("x", 0, 1, 1), 0):
            await asyncio.sleep(0.05)

    async def main() -> None:
        with StallReporter(in_flight, reports.append, first_s=0.2):
            for _ in range(8):
                await sample()
            await asyncio.sleep(0.4)

    asyncio.run(main())
    assert reports == []


def test_a_sample_s_waits_are_reported_in_order_when_it_ends() -> None:
    in_flight, finished = SamplesInFlight(), list[tuple[int | None, bool, list[str]]]()
    times = list[float]()

    def note(
        group: GroupId, index: int | None, evaluation: bool, marks: Sequence[tuple[str, float]], ended: float
    ) -> None:
        finished.append((index, evaluation, [what for what, _ in marks]))
        times.extend([*(at for _, at in marks), ended])

    async def main() -> None:
        in_flight.on_end = note
        with in_flight.track(GroupId("x", 0, 1, 1), 3, evaluation=True) as state:
            set_wait("a free slot")
            token = state.call_begins()
            set_engine("engine 1")
            set_engine("engine 2")
            other = state.call_begins()  # at once with the first call
            state.call_ends(other)
            assert in_flight.text == "engine: 1 sample"
            state.call_ends(token)
            assert in_flight.text == "generator: 1 sample"
            for _ in range(MAX_MARKS):
                set_wait("reward math")
                await asyncio.sleep(0)

    asyncio.run(main())
    ((index, evaluation, whats),) = finished
    assert (index, evaluation, whats[:5]) == (3, True, ["its turn", "a free slot", "engine 1", "engine 2", "generator"])
    assert len(whats) == MAX_MARKS
    assert times == sorted(times)
