"""simulate: a training run's time on a virtual clock, with the scheduler's own code and simulated engines and trainer.

Not simulated: prefill, memory, networks, rewards (they take no time), and differences between engines.

Example:

    figures = simulate(Scenario(rollout_policy="continuous", max_staleness=2))
    print(figures.utilisation, figures.max_staleness)
"""

import asyncio
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from slime_core.events import Event
from slime_core.roles import GenerateContext, RewardContext, SamplingParams
from slime_core.rollout import (
    Choices,
    Parts,
    RolloutPolicy,
    Scheduler,
    Scoring,
    UsedGenerator,
    UsedReward,
    make_scheduler,
)
from slime_core.rollout.runner import STATUS_OF_FINISH
from slime_core.sample import Group, GroupId, Json, Message, Sample
from slime_core.score import Score, Verdict
from slime_simulate.clock import VirtualLoop
from slime_simulate.fleet import Fleet, FleetShape, Lengths

ENDLESS = 10**6
"""Rollouts of the full run, of which only a few steps are simulated."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A simulation's parameters. Times are in units of one token decoded alone."""

    rollout_policy: str = "continuous"
    """sync, async or continuous."""
    partial_rollout: bool = False
    """As in a run."""
    max_staleness: int = 2
    """As in a run."""
    over_sampling: float = 1.5
    """Groups in flight, in batches; only for sync with partial rollouts."""
    fleet: FleetShape = field(default_factory=FleetShape)
    """The engines."""
    lengths: Lengths = field(default_factory=Lengths)
    """The responses."""
    batch: int = 8000
    """Groups of a step."""
    n_samples_per_prompt: int = 8
    """Samples of a group."""
    train_time: float = 1.0
    """Seconds of a training step, as a multiple of the time that the full fleet takes for a batch."""
    steps: int = 8
    """Steps that are measured."""
    warm_up: int = 3
    """Steps before, which fill the pipeline."""
    seed: int = 0
    """Draws the lengths."""

    @property
    def batch_time(self) -> float:
        """What the full fleet takes for a batch of mean lengths."""
        return self.batch * self.n_samples_per_prompt * self.lengths.mean / self.fleet.capacity


@dataclass(frozen=True, slots=True)
class Figures:
    """Results over the measured steps."""

    utilisation: float
    """Tokens trained on, over what the full fleet could have decoded in the time: 0 to about 1."""
    step_time: float
    """Mean time of a step, as a multiple of the time that the full fleet takes for a batch."""
    discarded: float
    """Share of drawn groups that were discarded, finished or not."""
    mean_staleness: float
    """Versions, mean over trained groups."""
    max_staleness: int
    """Versions, maximum over trained groups."""
    length_bias: float
    """Mean length of trained responses over the mean of all that were drawn, less 1."""
    events: int
    """Requests that began or ended, over the whole simulation."""
    us_per_event: float
    """Processor time per event, scheduler and simulation together, in microseconds."""

    def to_dict(self) -> dict[str, Json]:
        """Plain JSON."""
        return asdict(self)


def simulate(scenario: Scenario, make: Callable[[Parts, Scenario], Scheduler] | None = None) -> Figures:
    """Run a scenario.

    Args:
        scenario: what to simulate.
        make: builds the scheduler, instead of the policy that the scenario names.
    """
    collects = gc.isenabled()
    gc.disable()  # there are no cycles, and searching all live samples for some takes most of the time
    try:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(_Run(scenario, make or _scheduler).whole())
    finally:
        if collects:
            gc.enable()


def _scheduler(parts: Parts, scenario: Scenario) -> Scheduler:
    """The policy of that name, as a run builds it."""
    return make_scheduler(scenario.rollout_policy, parts, scenario.batch, ENDLESS)


class _Run:
    """One simulation in progress."""

    def __init__(self, scenario: Scenario, make: Callable[[Parts, Scenario], Scheduler]) -> None:
        self._scenario = scenario
        self._fleet = Fleet(scenario.fleet, scenario.lengths, scenario.seed)
        self._source = _Numbers(scenario.n_samples_per_prompt)
        sampling = SamplingParams(scenario.lengths.longest)
        policy = RolloutPolicy(
            seed=scenario.seed,
            sampling=sampling,
            over_sampling_batch_size=round(scenario.over_sampling * scenario.batch),
            max_concurrency=scenario.fleet.engines * scenario.fleet.slots,
            max_staleness=scenario.max_staleness,
            partial_rollout=scenario.partial_rollout,
        )
        choices = Choices(
            UsedGenerator("one_call", "simulation", _one_call),
            Scoring([UsedReward("length", "simulation", _length)]),
        )
        self._scheduler = make(
            Parts(policy, self._source, self._fleet, _Tokens(), choices, None, (), _ignore), scenario
        )
        self._trained: list[list[tuple[int, int, int]]] = []
        """For each step: age, tokens and samples of each group."""

    async def whole(self) -> Figures:
        """Simulate every step, and return the figures."""
        scenario, loop = self._scenario, asyncio.get_running_loop()
        cpu = time.process_time()
        ends = []
        await self._publish(0)
        for rollout_id in range(scenario.warm_up + scenario.steps):
            result = await self._scheduler.collect(rollout_id, scenario.batch)
            self._trained.append([_measured(group, rollout_id) for group in result.kept])
            self._scheduler.look_ahead(rollout_id + 1, scenario.batch)
            await asyncio.sleep(scenario.train_time * scenario.batch_time)
            await self._publish(rollout_id + 1)
            ends.append(loop.time())
        alive = sum(self._scheduler.live())
        await self._scheduler.close()
        return self._figures(ends, alive, time.process_time() - cpu)

    async def _publish(self, version: int) -> None:
        await self._scheduler.settle()
        self._fleet.version = version
        self._scheduler.resume_with(version)

    def _figures(self, ends: Sequence[float], alive: int, cpu: float) -> Figures:
        scenario = self._scenario
        first = scenario.warm_up
        elapsed = ends[-1] - ends[first - 1]
        measured = [group for step in self._trained[first:] for group in step]
        tokens = sum(count for _, count, _ in measured)
        samples = sum(count for _, _, count in measured)
        trained = sum(len(step) for step in self._trained)
        drawn = range(self._source.drawn * scenario.n_samples_per_prompt)
        population = sum(scenario.lengths.of(scenario.seed, number) for number in drawn) / len(drawn)
        return Figures(
            utilisation=tokens / (scenario.fleet.capacity * elapsed),
            step_time=elapsed / scenario.steps / scenario.batch_time,
            discarded=1.0 - trained / (self._source.drawn - alive),
            mean_staleness=sum(age for age, _, _ in measured) / len(measured),
            max_staleness=max(age for age, _, _ in measured),
            length_bias=tokens / samples / population - 1.0,
            events=self._fleet.events,
            us_per_event=1e6 * cpu / self._fleet.events,
        )


def _measured(group: Group, rollout_id: int) -> tuple[int, int, int]:
    tokens = sum(sample.response_length for sample in group.samples)
    return rollout_id - (group.oldest_weight_version or 0), tokens, len(group.samples)


class _Numbers:
    """A data source: every sample's prompt is its number."""

    def __init__(self, size: int) -> None:
        self.drawn = 0
        self._size = size
        self._back: list[Group] = []

    async def draw(self, count: int) -> list[Group]:
        taken, self._back = self._back[:count], self._back[count:]
        return taken + [self._next() for _ in range(count - len(taken))]

    def _next(self) -> Group:
        number, self.drawn = self.drawn, self.drawn + 1
        samples = [
            Sample(group_index=number, index=index, rollout_id=number * self._size + index, prompt="")
            for index in range(self._size)
        ]
        return Group(GroupId("simulation", 0, number, number), samples)

    def add(self, groups: Sequence[Group]) -> None:
        self._back.extend(groups)

    def state_dict(self) -> dict[str, Json]:
        return {}

    def load_state_dict(self, state: Mapping[str, Json]) -> None: ...

    def __len__(self) -> int:
        return 1


class _Tokens:
    """A tokenizer that has nothing to do."""

    eos_token_ids: frozenset[int] = frozenset()

    def encode(self, text: str) -> list[int]:
        return []

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return ""

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tools: Json = None,
        kwargs: Mapping[str, Json] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        return ""


async def _one_call(sample: Sample, ctx: GenerateContext) -> list[Sample]:
    """A generator that asks for the response with the sample's number."""
    sample.tokens = [sample.rollout_id or 0]
    output = await ctx.generate(sample.tokens, ctx.sampling)
    sample.append_response_tokens(output=output)
    sample.status = STATUS_OF_FINISH[output.finish]
    return [sample]


async def _length(sample: Sample, ctx: RewardContext) -> Verdict:
    return Score(float(sample.response_length))


async def _ignore(event: Event) -> None:
    """Discard the event."""
