"""Lanes: where the calls of one choice run apart from the driver, and come back as verdicts whatever happens.

Both copy the fields that the spec names, so that nothing the plugin does to its sample reaches the run's.
"""

import traceback
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from slime_core.catalog.checks import check_verdict, check_verdicts, checked_label
from slime_core.errors import ContractError
from slime_core.isolation.failure import CallFailure
from slime_core.isolation.pool import WorkerPool
from slime_core.isolation.threads import ThreadPool
from slime_core.isolation.wire import receive_sample, receive_verdict, send_context, send_sample
from slime_core.roles import CallSpec, ChecksLabels, RewardContext
from slime_core.sample import Json, Sample
from slime_core.score import Unscored, Verdict
from slime_core.stats import CallStats


class Lane(Protocol):
    """One kind of isolation of one choice."""

    async def ask(self, samples: Sequence[Sample], ctx: RewardContext, calls: CallStats) -> list[Verdict]:
        """One verdict a sample; the time without the wait for a place is counted in `calls`.

        Raises:
            CallFailure: there are none.
            StartError: the plugin cannot be built where its calls run.
        """
        ...

    async def start(self) -> None:
        """Find out whether the plugin can be built; raises as `ask` does."""
        ...

    def close(self) -> None:
        """End what was started."""
        ...

    async def check_label(self, sample: Sample) -> str | None:
        """What the reward's `check_label` says; None, too, where it has none.

        Raises:
            CallFailure: it gave no answer.
        """
        ...


class ProcessLane:
    """Calls run in worker processes, which can be killed."""

    def __init__(self, spec: CallSpec[object], pool: WorkerPool) -> None:
        """Use this pool, which is closed with the lane."""
        self._spec, self._pool = spec, pool

    async def start(self) -> None:
        """Start one worker."""
        await self._pool.start()

    async def ask(self, samples: Sequence[Sample], ctx: RewardContext, calls: CallStats) -> list[Verdict]:
        """See `Lane`."""
        sent: list[Json] = [send_sample(sample, self._spec.fields) for sample in samples]
        answer = await self._pool.call({"samples": sent, "ctx": send_context(ctx)}, self._spec.timeout_s, calls)
        try:
            verdicts = [receive_verdict(each) for each in cast(list[Json], answer)]
        except (TypeError, ValueError) as error:
            raise CallFailure("contract", str(error)) from None
        if len(verdicts) != len(samples):
            raise CallFailure("contract", f"{len(verdicts)} verdicts for {len(samples)} samples")
        return verdicts

    async def check_label(self, sample: Sample) -> str | None:
        """See `Lane`."""
        request: dict[str, Json] = {"samples": [send_sample(sample, self._spec.fields)], "check_label": True}
        calls = CallStats(self._spec.role, self._spec.name, "")  # not among those of the run
        answer = receive_verdict(cast(list[Json], await self._pool.call(request, self._spec.timeout_s, calls))[0])
        return answer.reason if isinstance(answer, Unscored) else None

    def close(self) -> None:
        """Kill the workers."""
        self._pool.close()


class ThreadLane:
    """Calls run in threads of the driver."""

    def __init__(
        self, spec: CallSpec[object], plugin: str, call: Callable[..., object], many: bool, pool: ThreadPool
    ) -> None:
        """`call` takes a list of samples if `many`, else one."""
        self._spec, self._plugin, self._call, self._many, self._pool = spec, plugin, call, many, pool

    async def start(self) -> None:
        """Nothing: what runs in threads was built in the driver."""

    async def ask(self, samples: Sequence[Sample], ctx: RewardContext, calls: CallStats) -> list[Verdict]:
        """See `Lane`."""
        copies = [receive_sample(send_sample(sample, self._spec.fields)) for sample in samples]
        subject = copies if self._many else copies[0]
        limit = self._spec.timeout_s
        try:
            answer = await self._pool.call(lambda: self._call(subject, ctx), limit, calls)
            if self._many:
                return list(check_verdicts(answer, plugin=self._plugin, samples=copies))
            return [check_verdict(answer, plugin=self._plugin, sample=copies[0])]
        except TimeoutError:
            raise CallFailure(
                "timeout", f"no answer in {limit:g} s; its thread was left behind", retryable=True
            ) from None
        except ContractError as error:
            raise CallFailure("contract", str(error)) from error
        except Exception as error:
            raise CallFailure(type(error).__name__, traceback.format_exc()) from error

    async def check_label(self, sample: Sample) -> str | None:
        """See `Lane`; here and not in a thread, for it is a plain function that is fast."""
        called: object = self._call
        if not isinstance(called, ChecksLabels):
            return None
        return checked_label(called.check_label(receive_sample(send_sample(sample, self._spec.fields))))

    def close(self) -> None:
        """Let idle threads end."""
        self._pool.close()


class Isolated:
    """A `Reward` whose calls run in a lane."""

    def __init__(self, lane: Lane, calls: CallStats) -> None:
        """Calls are counted in `calls`."""
        self.lane, self._stats = lane, calls

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """The verdict; `Unscored` when there is none."""
        return (await self._ask([sample], ctx))[0]

    async def _ask(self, samples: Sequence[Sample], ctx: RewardContext) -> list[Verdict]:
        try:
            return await self.lane.ask(samples, ctx, self._stats)
        except CallFailure as failure:
            if failure.reason == "timeout":
                self._stats.timeouts += 1
            else:
                self._stats.errors += 1
            return [failure.verdict() for _ in samples]


class IsolatedGroup(Isolated):
    """A `GroupReward` whose calls run in a lane."""

    async def __call__(self, samples: Sequence[Sample], ctx: RewardContext) -> list[Verdict]:  # type: ignore[override]  # a group's samples where a reward has one
        """One verdict a sample, in their order."""
        return await self._ask(samples, ctx)
