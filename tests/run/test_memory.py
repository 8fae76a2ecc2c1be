"""Engine and trainer take turns with memory: released before the other resumes, given back for what needs it."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from slime_core.roles import MemoryTag, MemoryTags
from slime_core.run.session import Memory, Phase

WEIGHTS, CACHE, GRADIENT = MemoryTag.WEIGHTS, MemoryTag.KV_CACHE, MemoryTag.GRADIENT
TAGS = st.frozensets(st.sampled_from(MemoryTag))


class Side:
    """Keeps what it gave up, and refuses what no caller may ask."""

    def __init__(self, name: str, calls: list[tuple[str, str, MemoryTags]]) -> None:
        self.name, self.calls, self.out = name, calls, frozenset[MemoryTag]()

    async def release(self, tags: MemoryTags) -> None:
        assert not tags & self.out, "given up twice"
        self.out |= tags
        self.calls.append((self.name, "release", tags))

    async def resume(self, tags: MemoryTags) -> None:
        assert tags <= self.out, "taken back unreleased"
        self.out -= tags
        self.calls.append((self.name, "resume", tags))


def memory_of(
    of_engine: MemoryTags = frozenset(), of_trainer: MemoryTags = frozenset()
) -> tuple[Memory, Side, Side, list[tuple[str, str, MemoryTags]]]:
    calls: list[tuple[str, str, MemoryTags]] = []
    engine, trainer = Side("engine", calls), Side("trainer", calls)
    return Memory(engine, trainer, of_engine, of_trainer), engine, trainer, calls


def test_a_rollout_releases_on_one_side_before_it_resumes_on_the_other() -> None:
    memory, _, _, calls = memory_of(frozenset({WEIGHTS, CACHE}), frozenset({GRADIENT}))

    async def rollout() -> None:
        for phase in (Phase.GENERATE, Phase.TRAIN, Phase.PUBLISH, Phase.GENERATE):
            await memory.go_to(phase)

    asyncio.run(rollout())
    assert calls == [
        ("trainer", "release", {GRADIENT}),
        ("engine", "release", {WEIGHTS, CACHE}),
        ("trainer", "resume", {GRADIENT}),
        ("engine", "resume", {WEIGHTS}),
        ("trainer", "release", {GRADIENT}),
        ("engine", "resume", {CACHE}),
    ]


@given(engine=TAGS, trainer=TAGS, phases=st.lists(st.sampled_from(Phase), max_size=12))
def test_after_any_phases_each_side_has_what_the_last_one_needs(
    engine: MemoryTags, trainer: MemoryTags, phases: list[Phase]
) -> None:
    memory, of_engine, of_trainer, _ = memory_of(engine, trainer)

    async def visit() -> None:
        for phase in phases:
            await memory.go_to(phase)
            away = {Phase.GENERATE: frozenset(), Phase.TRAIN: engine, Phase.PUBLISH: engine - {WEIGHTS}}
            assert of_engine.out == away[phase]
            assert of_trainer.out == (trainer if phase is Phase.GENERATE else frozenset())

    asyncio.run(visit())
