"""A scripted engine, a small data source and a scheduler over them: the rollout's own code is what runs."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from slime_core.catalog.catalog import BuiltChoice
from slime_core.errors import UnknownName
from slime_core.events import Event
from slime_core.processes import OnLoop
from slime_core.roles import (
    Decision,
    Drop,
    Engine,
    FilterContext,
    FinishReason,
    GenerateOutput,
    GenerateRequest,
    Generator,
    GroupFilter,
    GroupReward,
    Keep,
    Reward,
    RewardContext,
    SampleFilter,
    SamplingParams,
    WeightChannel,
)
from slime_core.rollout import (
    Choices,
    Limits,
    Parts,
    RolloutPolicy,
    Scheduler,
    Scoring,
    ServedTeacher,
    SingleTurn,
    SyncScheduler,
    UsedGenerator,
    UsedReward,
)
from slime_core.rollout.engine_handle import EngineHandle
from slime_core.sample import Group, GroupId, Json, Message, Sample
from slime_core.score import Score, Verdict
from slime_core.stats import CallStats

Answer = Callable[[GenerateRequest], Awaitable[GenerateOutput]]
UseT = TypeVar("UseT")
PROMPT_IDS = 1000
"""The id of prompt "7" is 1007."""


class Numbers:
    """A tokenizer of numbers: prompt "7" is one id; a response is printed as its ids."""

    eos_token_ids = frozenset({2})

    def __init__(self) -> None:
        self.encoded = 0

    def encode(self, text: str) -> list[int]:
        self.encoded += 1
        return [PROMPT_IDS + int(text)]

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return " ".join(map(str, tokens))

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tools: Json = None,
        kwargs: Mapping[str, Json] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        return str(messages[-1]["content"])


class Idle:
    """An engine's methods other than `generate`; they do nothing."""

    async def start(self) -> None: ...

    async def load_weights(self, channel: WeightChannel, version: int) -> None: ...

    async def abort(self) -> None: ...

    async def close(self) -> None: ...


class ScriptedEngine(Idle):
    """Answers as the test says; by default two tokens that depend on the seed, after a delay that does too."""

    def __init__(self, answer: Answer | None = None, jitter: int = 0) -> None:
        self.requests: list[GenerateRequest] = []
        self.running = 0
        self.most_at_once = 0
        self._answer = answer
        self._jitter = jitter

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        self.requests.append(request)
        self.running += 1
        self.most_at_once = max(self.running, self.most_at_once)
        try:
            if self._answer is not None:
                return await self._answer(request)
            for _ in range((request.seed ^ self._jitter) % 7):
                await asyncio.sleep(0)
            return output_of(request)
        finally:
            self.running -= 1


def output_of(request: GenerateRequest, finish: FinishReason = FinishReason.STOP) -> GenerateOutput:
    """Two tokens and their log-probs, a function of the seed."""
    first = 3 + request.seed % 90
    return GenerateOutput([first, 2], [-(first / 100), -0.5], finish, weight_version=4)


class Checked(EngineHandle):
    """One engine with its checks, outside a pool."""

    async def abort(self) -> None:
        await self.call("abort")


def checked(engine: object) -> Engine:
    limits = Limits(silence_s=300.0, restart_s=40.0, probe_s=30.0, load_s=100.0)
    return cast(Engine, Checked(0, BuiltChoice("mine", "tests", cast(Engine, engine)), limits))


class Countdown:
    """A data source whose n-th group has the prompt str(n)."""

    def __init__(self, size: int) -> None:
        self.size, self.drawn, self.back = size, 0, list[Group]()

    async def draw(self, count: int) -> list[Group]:
        taken, self.back = self.back[:count], self.back[count:]
        return taken + [self.next_group() for _ in range(count - len(taken))]

    def next_group(self) -> Group:
        number = self.drawn
        self.drawn += 1
        samples = [
            Sample(
                group_index=number,
                index=index,
                rollout_id=number * self.size + index,
                prompt=str(number),
                metadata={"notes": []},
                source="numbers",
            )
            for index in range(self.size)
        ]
        return Group(GroupId("numbers", 0, number, number), samples)

    def add(self, groups: Sequence[Group]) -> None:
        self.back.extend(groups)

    def state_dict(self) -> dict[str, Json]:
        return {"drawn": self.drawn, "back": [group.to_dict() for group in self.back]}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        raise NotImplementedError

    def __len__(self) -> int:
        return 1000


class Thirds:
    """Keeps a group in three."""

    def __call__(self, group: Group, ctx: FilterContext) -> Decision:
        return Keep() if group.id.draw % 3 == 0 else Drop("rest")


async def by_index(sample: Sample, ctx: RewardContext) -> Verdict:
    """Even samples 1, odd ones 0."""
    return Score(float((sample.index or 0) % 2 == 0))


@dataclass
class Bench:
    """A scheduler and all that is around it."""

    scheduler: Scheduler
    engine: ScriptedEngine
    source: Countdown
    tokenizer: Numbers
    events: list[Event] = field(default_factory=list)


class ByName:
    """What rows may name."""

    def __init__(self, named: Mapping[str, UsedReward[Reward] | UsedGenerator]) -> None:
        self._named = named

    def generator(self, name: str) -> UsedGenerator:
        return self._find(name, UsedGenerator)

    def reward(self, name: str) -> UsedReward[Reward]:
        return self._find(name, UsedReward)

    def _find(self, name: str, kind: type[UseT]) -> UseT:
        if not isinstance(found := self._named.get(name), kind):
            raise UnknownName(f"no choice {name!r}")
        return found


def reward_use(reward: Reward, name: str = "r", weight: float = 1.0, timeout_s: float = 5.0) -> UsedReward[Reward]:
    calls = CallStats("reward", name, "tests")
    return UsedReward(name, "tests", OnLoop(reward, timeout_s=timeout_s, max_concurrency=None, calls=calls), weight)


def generator_use(generator: Generator | UsedGenerator, timeout_s: float) -> UsedGenerator:
    if isinstance(generator, UsedGenerator):
        return generator
    calls = CallStats("generator", "tests", "tests")
    return UsedGenerator("scripted", "tests", OnLoop(generator, timeout_s=timeout_s, max_concurrency=None, calls=calls))


def make_bench(
    *,
    engine: ScriptedEngine | None = None,
    rewards: Sequence[UsedReward[Reward]] | None = None,
    group_rewards: Sequence[UsedReward[GroupReward]] = (),
    generator: Generator | UsedGenerator | None = None,
    group_filter: GroupFilter | None = None,
    sample_filters: Sequence[SampleFilter] = (),
    named: Mapping[str, UsedReward[Reward] | UsedGenerator] = {},
    teacher: ServedTeacher | None = None,
    n: int = 2,
    sample_timeout_s: float = 600.0,
    make: Callable[[Parts], Scheduler] = SyncScheduler,
    **policy: object,
) -> Bench:
    """A scheduler over a scripted engine; fields of the policy are given by name."""
    engine = engine or ScriptedEngine()
    source, tokenizer, events = Countdown(n), Numbers(), list[Event]()

    async def emit(event: Event) -> None:
        events.append(event)

    parts = Parts(
        policy=replace(RolloutPolicy(seed=5, sampling=SamplingParams(8), max_error_rate=1.0), **policy),  # type: ignore[arg-type]
        source=source,
        engine=engine,
        tokenizer=tokenizer,
        choices=Choices(
            generator_use(generator or SingleTurn(), sample_timeout_s),
            Scoring([reward_use(by_index)] if rewards is None else rewards, group_rewards),
            ByName(named).generator,
            ByName(named).reward,
            teacher,
        ),
        group_filter=None if group_filter is None else BuiltChoice("filter", "tests", group_filter),
        sample_filters=[BuiltChoice(f"filter{number}", "tests", each) for number, each in enumerate(sample_filters)],
        emit=emit,
    )
    return Bench(make(parts), engine, source, tokenizer, events)
