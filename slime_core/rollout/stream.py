"""The policy `continuous`: generation goes on while the trainer works, up to a limit of staleness.

No group is dropped for its age: `Staleness` limits what is generated and says when a step has to wait. `make_scheduler`
builds the scheduler of each policy.

Example:

    stream = Stream(parts, Staleness(batch=64, num_rollout=200, most=1))
    result = await stream.collect(rollout_id=3, want=64)        # and generation goes on
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import cast

from slime_core.aio import cancel_all
from slime_core.events import GroupsDone, SamplesDone
from slime_core.roles import FilterContext
from slime_core.rollout.metrics import RolloutResult, Tally
from slime_core.rollout.runner import Purpose, RunGroup
from slime_core.rollout.scheduler import Parts, Scheduler, Waves, refuse_foreign
from slime_core.sample import Group, GroupId, Json


@dataclass(frozen=True, slots=True)
class Staleness:
    """The staleness limit: step r trains on no group whose weights were of a version below r - `most`.

    A group of version v may be trained on until step v + `most`, and a step takes the oldest finished groups. So once
    step r has taken its groups, those of versions up to v that are left, finished or in flight, must fit into the steps
    r + 1 to v + `most`:

        left(v) <= batch * (v + most - r)        for each v

    `room` keeps it for new groups, whose version is the newest. `must_wait` keeps it for those in flight: the step
    waits for them while the inequality fails for some v.
    """

    batch: int
    """Fresh groups that a step takes."""
    num_rollout: int
    """Steps of the run; nothing is generated for later ones."""
    most: int = 1
    """Most versions that a group may be behind (`max_staleness`)."""
    over_sampling: int | None = None
    """Groups alive while a step waits, if nothing is drawn at other times; None draws at any time."""

    def room(self, version: int, collected: int, waiting_for: int | None) -> int:
        """Most groups that may be alive with weights of this version, after so many steps were handed over."""
        steps = min(version + self.most + 1, self.num_rollout) - collected
        bound = max(self.batch * steps, waiting_for or 0)
        if self.over_sampling is None:
            return bound
        return min(bound, max(self.over_sampling, waiting_for)) if waiting_for else 0

    def is_last_step(self, version: int, rollout_id: int) -> bool:
        """Whether a group of this version would be too old for the step after this one."""
        return rollout_id - version >= self.most

    def must_wait(self, rollout_id: int, want: int, finished: Mapping[int, int], flying: Mapping[int, int]) -> bool:
        """Whether this step has to wait for groups in flight; `finished` and `flying` count groups by version."""
        to_take, left, in_flight = want, 0, 0
        for version in sorted({*finished, *flying}):
            done, under_way = finished.get(version, 0), flying.get(version, 0)
            taken = done if self.is_last_step(version, rollout_id) else min(to_take, done)
            to_take = max(0, to_take - taken)
            left += done + under_way - taken
            in_flight += under_way
            if in_flight and left > self.batch * (version + self.most - rollout_id):
                return True
        return False


@dataclass(frozen=True, slots=True)
class _Flight:
    """A group in flight."""

    version: int
    """Weights when it was drawn."""
    group: Group
    """As drawn."""
    task: "asyncio.Task[None]"


class Stream(Scheduler):
    """The policy `continuous`; and `sync` with partial rollouts, which are interrupted while the trainer works."""

    def __init__(self, parts: Parts, staleness: Staleness) -> None:
        super().__init__(parts)
        self._staleness = staleness
        self._version = self._collected = 0
        self._flights: dict[GroupId, _Flight] = {}
        self._ready: list[tuple[int, int, Group]] = []
        """A heap of version, number of the draw and group."""
        self._tally = Tally("rollout 0")
        self._waiting_for: int | None = None
        self._per_group: int | None = None
        self._generating = 0
        """Samples that hold a slot or wait for one."""
        self._changed = asyncio.Event()
        self._drawing = asyncio.Lock()
        self._drawer: asyncio.Task[None] | None = None
        self._error: BaseException | None = None

    async def collect(self, rollout_id: int, want: int) -> RolloutResult:
        """The oldest finished groups, once there are enough and the staleness limit need not wait for others."""
        self._waiting_for = want
        self._changed.set()  # more may be drawn for a step that waits
        self._drawer = self._drawer or asyncio.create_task(self._draw_on())
        try:
            while not self._is_complete(rollout_id, want):
                self._check(want)
                await self._next_change()
        finally:
            self._waiting_for = None
        result = self._hand_over(rollout_id, want)
        if self._staleness.over_sampling is not None:
            await self.runner.engine.pause()
        return result

    async def settle(self) -> None:
        """Interrupt what is in flight, for partial rollouts; else the engine decides when it switches."""
        if self.policy.partial_rollout and self._flights:
            await self.runner.engine.pause()

    def published(self, version: int) -> None:
        """Set the version of groups that are drawn from now on."""
        if self._drawer is None:
            self._collected, self._tally = version, Tally(f"rollout {version}")
        self._version = version
        self.runner.engine.go_on()
        self._changed.set()

    @asynccontextmanager
    async def undisturbed(self) -> AsyncIterator[None]:
        async with self._drawing:
            yield

    def live(self) -> tuple[int, int]:
        return len(self._flights), len(self._ready)

    def state_dict(self) -> dict[str, Json]:
        """Groups alive, as drawn or as finished."""
        return {
            "collected": self._collected,
            "in_flight": [flight.group.to_dict() for flight in self._flights.values()],
            "ready": [[version, number, group.to_dict()] for version, number, group in sorted(self._ready)],
        }

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        refuse_foreign(state, {"collected", "in_flight", "ready"})
        if not state:
            return
        self._collected = cast(int, state["collected"])
        self._source.add([Group.from_dict(each) for each in cast(list[Mapping[str, Json]], state["in_flight"])])
        ready = cast(list[tuple[int, int, Mapping[str, Json]]], state["ready"])
        self._ready = [(version, number, Group.from_dict(group)) for version, number, group in ready]
        heapq.heapify(self._ready)

    async def close(self) -> None:
        drawer = [self._drawer] if self._drawer else []
        await cancel_all([*drawer, *(flight.task for flight in self._flights.values())])

    # --- drawing

    async def _draw_on(self) -> None:
        try:
            while True:
                if count := self._free():
                    async with self._drawing:
                        for group in await self._source.draw(count):
                            self._start(group)
                else:
                    await self._next_change()
        except BaseException as error:
            self._fail(error)

    def _free(self) -> int:
        # The first group is drawn alone, to see how many samples it has.
        alive = len(self._flights) + len(self._ready)
        free = self._staleness.room(self._version, self._collected, self._waiting_for) - alive
        if self._per_group is None:
            return min(1, max(0, free))
        slots = self.policy.max_concurrency - self._generating
        return max(0, min(free, -(-slots // self._per_group)))

    def _start(self, group: Group) -> None:
        self._per_group = len(group.samples)
        self._generating += len(group.samples)
        task = asyncio.create_task(self._fly(group, self._version))
        self._flights[group.id] = _Flight(self._version, group, task)

    async def _fly(self, group: Group, version: int) -> None:
        try:
            purpose = Purpose(self._collected, False, self.policy.sampling)
            ran = (await self.runner.run([group], purpose, self._freed))[0]
            if ran.is_interrupted:
                del self._flights[ran.drawn.id]
                self._source.add([group])
            else:
                await self._finish(ran, version)
        except BaseException as error:
            self._fail(error)
        self._changed.set()

    def _freed(self) -> None:
        self._generating -= 1
        if self._free():
            self._changed.set()

    async def _finish(self, ran: RunGroup, version: int) -> None:
        self._tally.add_samples([ran])
        for each in ran.ran:
            self._tally.errors.add(each.execution.failure)
        kept = Tally("")
        short = self._waiting_for is not None and len(self._ready) < self._waiting_for
        self.sort([ran], FilterContext(self._collected), kept, want=int(short))
        await self.emit(SamplesDone(self._collected, [each.sample for each in ran.scored], evaluation=False))
        del self._flights[ran.drawn.id]
        self._tally.failed += kept.failed
        for group in kept.kept:
            heapq.heappush(self._ready, (version, group.id.draw, group))
        for group in kept.dropped:
            self._tally.drop(group, kept.reasons[group.id])
        await self.emit(GroupsDone(self._collected, kept.kept, kept.reasons))

    def _fail(self, error: BaseException) -> None:
        # The first error is kept for `collect`; `close` cancels tasks.
        if not isinstance(error, asyncio.CancelledError):
            self._error = self._error or error
        self._changed.set()

    # --- handing over

    def _is_complete(self, rollout_id: int, want: int) -> bool:
        if self._error is not None:
            raise self._error
        if len(self._ready) < want:
            return False
        finished = Counter(version for version, _, _ in self._ready)
        flying = Counter(flight.version for flight in self._flights.values())
        return not self._staleness.must_wait(rollout_id, want, finished, flying)

    def _check(self, want: int) -> None:
        self._tally.errors.check(self.policy.max_error_rate, expected=want * (self._per_group or 1))
        wave = self.policy.over_sampling_batch_size or max(1, want)
        if len(self._tally.dropped) >= self.policy.max_filter_waves * wave:
            self._tally.kept = [group for _, _, group in self._ready]
            raise self._tally.give_up(want, self.policy.max_filter_waves)

    def _hand_over(self, rollout_id: int, want: int) -> RolloutResult:
        staleness, tally, self._tally = self._staleness, self._tally, Tally(f"rollout {rollout_id + 1}")
        while self._ready and (len(tally.kept) < want or staleness.is_last_step(self._ready[0][0], rollout_id)):
            tally.kept.append(heapq.heappop(self._ready)[2])
        self._collected = rollout_id + 1
        self._changed.set()
        self.remove_samples(tally, FilterContext(rollout_id))
        tally.errors.check(self.policy.max_error_rate)
        return tally.result()

    async def _next_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


POLICIES = ("sync", "async", "continuous")
"""Names of `rollout_policy`."""


def make_scheduler(policy: str, parts: Parts, batch: int, rollouts: int) -> Scheduler:
    """The scheduler of a policy of `POLICIES`, for steps of `batch` fresh groups and a run of so many rollouts."""
    limit = Staleness(batch, rollouts, parts.policy.max_staleness)
    if policy == "continuous":
        return Stream(parts, limit)
    if parts.policy.partial_rollout:
        return Stream(parts, replace(limit, over_sampling=parts.policy.over_sampling_batch_size))
    return Waves(parts, ahead=policy == "async")
