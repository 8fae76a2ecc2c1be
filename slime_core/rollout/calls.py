"""Calls: the engine as one sample sees it, each call with a name that its seed follows from, within the run's limits.

Example:

    calls = Calls(engine, CallLimits(seed=5, max_context=4096), policy.sampling, (group_id, 0, followed))
    out = await calls.generate(prompt, sampling, turn="agent-2/turn-7", tell=show)
    calls.answers                   # of all calls, for what is made known of the samples afterwards
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from math import isfinite

from slime_core.errors import ContractError, LimitError
from slime_core.roles import Extra, GenerateChunk, GenerateOutput, GenerateRequest, SamplingParams
from slime_core.rollout.carry import Call
from slime_core.rollout.pausable import PausableEngine
from slime_core.rollout.waiting import Followed
from slime_core.sample import GroupId, Json, Sample
from slime_core.seeds import derive_seed

ATTEMPT = 0
"""A call that is made again has the seed that it had: its sample is as if nothing had failed."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What the calls of every sample keep to."""

    seed: int
    """The run's."""
    max_context: int | None = None
    """Tokens of prompt and answer together; None: as many as the engine takes."""
    max_turns: int | None = None
    """Calls of one sample; None: as many as it makes."""


class Calls:
    """The calls of one sample, and what its generator measured."""

    def __init__(
        self,
        engine: PausableEngine,
        limits: CallLimits,
        sampling: SamplingParams,
        where: tuple[GroupId, int, Followed],
        want: frozenset[Extra] = frozenset(),
    ) -> None:
        """None yet.

        Args:
            engine: what answers.
            limits: what the calls keep to.
            sampling: of calls that do not say how.
            where: the sample's group, its number in it, and the sample in flight.
            want: what training wants of each answer beyond tokens and log-probs.
        """
        group, index, self._followed = where
        self.answers: list[GenerateOutput] = []
        """In the order in which they came."""
        self.known: list[Call] = []
        """Prompts and answers of those that say more than tokens."""
        self.measured: dict[str, list[float]] = {}
        """Values by name."""
        self._engine, self._limits, self._sampling, self._group = engine, limits, sampling, group
        self._want = want
        self._identity = (limits.seed, group, index)
        self._names: set[int | str] = set()
        self._unnamed = 0
        self._sessions: set[str] = set()
        self._begun = self._busy_since = time.monotonic()
        self._busy, self._busy_s = 0, 0.0

    def begin(self) -> None:
        """The generator begins: its time counts from now on."""
        self._begun, self._busy_s = time.monotonic(), 0.0

    def note(self, samples: Sequence[Sample]) -> None:
        """Give finished samples the session that all calls named, where their generator gave none."""
        for sample in samples:
            if sample.session_id is None and len(self._sessions) == 1:
                (sample.session_id,) = self._sessions

    @property
    def elsewhere_s(self) -> float:
        """Seconds without any call, between several: those of tools and environments.

        It is a metric and no field of samples, which are the same in every bit in two runs of one seed.
        """
        return max(0.0, time.monotonic() - self._begun - self._busy_s) if len(self.answers) > 1 else 0.0

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams | None = None,
        *,
        turn: str | None = None,
        session: str | None = None,
        tell: Callable[[GenerateChunk], None] | None = None,
        media: Mapping[str, Json] | None = None,
    ) -> GenerateOutput:
        """One engine call; see `slime_core.roles.Generate`."""
        name, asked = self._named(turn), sampling or self._sampling
        names, answers, known = self._names, self.answers, self.known  # of a call that `anew` forgets, forgotten ones
        token = self._followed.call_begins()
        self._busy_since = self._busy_since if self._busy else time.monotonic()
        self._busy += 1
        try:
            seed = seed_of_call(*self._identity, name)
            asked = self._within_context(prompt, asked)
            request = GenerateRequest(prompt, asked, seed, self._group, session=session, media=media, want=self._want)
            made = await (self._engine.generate(request) if tell is None else self._told(request, tell))
        except BaseException:
            names.discard(name)
            raise
        finally:
            self._followed.call_ends(token)
            self._busy -= 1
            self._busy_s += 0.0 if self._busy else time.monotonic() - self._busy_since
        if session is not None:
            self._sessions.add(session)
        answers.append(made)
        if made.extras is not None:
            known.append((tuple(prompt), made))
        return made

    def anew(self) -> None:
        """Forget all calls; see `slime_core.roles.GenerateContext`."""
        self.answers, self.known, self.measured = [], [], {}
        self._names, self._unnamed, self._sessions = set(), 0, set()
        self.begin()

    def measure(self, name: str, value: float) -> None:
        """Note a value; see `slime_core.roles.GenerateContext`."""
        if not name or not isfinite(value):
            raise ContractError(f"measured {name!r} = {value!r}; expected a name and a finite number")
        self.measured.setdefault(name, []).append(float(value))

    async def _told(self, request: GenerateRequest, tell: Callable[[GenerateChunk], None]) -> GenerateOutput:
        chunks: list[GenerateChunk] = []
        async with aclosing(self._engine.stream(request)) as parts:
            async for chunk in parts:
                chunks.append(chunk)
                tell(chunk)
        return GenerateOutput.joined(chunks)

    def _named(self, turn: str | None) -> int | str:
        """The call's name, which no other one has; the number of the calls that came without a name, if it has none."""
        name = self._unnamed if turn is None else turn
        if name in self._names:
            raise ContractError(
                f"it called the engine twice by the name turn={turn!r}, and both would draw alike: name each call of a "
                "sample differently"
            )
        most = self._limits.max_turns
        if most is not None and len(self._names) >= most:
            raise LimitError(
                f"the sample has made its {most} calls of the engine (rollout_max_turns): return what there is, with "
                "Status.TRUNCATED (ctx.max_turns says how many there may be)"
            )
        self._unnamed += turn is None
        self._names.add(name)
        return name

    def _within_context(self, prompt: Sequence[int], sampling: SamplingParams) -> SamplingParams:
        """The same sampling, its budget no larger than the context's room."""
        if (most := self._limits.max_context) is None:
            return sampling
        room = most - len(prompt)
        if room <= 0 < sampling.max_new_tokens:
            raise LimitError(
                f"a prompt of {len(prompt)} tokens leaves no room for an answer in a context of {most} "
                "(rollout_max_context_len, else the model's positions; ctx.max_context)"
            )
        return sampling if sampling.max_new_tokens <= room else replace(sampling, max_new_tokens=room)


def seed_of_call(seed: int, group: GroupId, index: int, name: int | str) -> int:
    """The seed of a call: the same in whatever order calls are made, and when it is made again.

    Args:
        seed: the run's.
        group: of the sample.
        index: the sample's number in its group.
        name: the call's, or its number among those without one, from 0.
    """
    return derive_seed(seed, *group, index, name, ATTEMPT)
