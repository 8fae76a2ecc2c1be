"""AgentGenerator: runs one agent per sample against the gateway, and builds training samples from its requests.

One gateway and one set of agents serve the whole run; each sample has its own session.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Protocol

from slime_agent_openai.bridge import Bridge
from slime_agent_openai.errors import AgentError
from slime_agent_openai.gateway import Gateway
from slime_agent_openai.parsers.answer import Family
from slime_agent_openai.parsers.families import PLAIN
from slime_agent_openai.parsers.registry import families, family_named, find_family, misfit, wrong_parser_message
from slime_agent_openai.samples import Outcome, samples_of
from slime_agent_openai.session import Session, SessionLimits
from slime_agent_openai.task import Result, Task, Verdict
from slime_core import Sample
from slime_core.roles import GenerateContext, Tokenizer


class Agents(Protocol):
    """Runs agents."""

    async def start(self) -> None: ...

    async def run(self, task: Task, *, timeout_s: float) -> Verdict: ...

    async def run_alone(self, task: Task, *, timeout_s: float) -> Verdict: ...

    async def close(self) -> None: ...


class Run(Protocol):
    """A method of `Agents` that runs one agent."""

    async def __call__(self, task: Task, *, timeout_s: float) -> Verdict: ...


class AgentGenerator:
    """Implements `slime_core.roles.Generator` and `StartsAndStops`."""

    def __init__(
        self,
        agents: Agents,
        gateway: Gateway,
        limits: SessionLimits,
        *,
        parser: str,
        seconds: float,
        announce: Callable[[str], None] | None = None,
    ) -> None:
        """`parser` names the family that reads answers ("auto" finds it); `seconds` is the time limit of one agent.

        `announce` gets the gateway's URL once agents can run.
        """
        self._agents, self._gateway, self._limits = agents, gateway, limits
        self._parser, self._seconds = parser, seconds
        self._announce = announce
        self._bridges: dict[str, Bridge] = {}
        self._family: tuple[Family, str] | None = None
        self._family_lock = asyncio.Lock()

    async def start(self) -> None:
        await self._gateway.start()
        await self._agents.start()
        if self._announce is not None:
            self._announce(self._gateway.url)

    async def close(self) -> None:
        try:
            await self._agents.close()
        finally:
            await self._gateway.close()

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        """Run the agent on one sample. Raises ConfigError if the agent offers tools and the parser reads no calls."""
        try:
            session, outcome = await self._session(sample, ctx, self._agents.run)
        except AgentError as error:
            if not error.shared:
                raise
            ctx.restart()  # turns are counted from zero again, so the engine repeats its answers
            session, outcome = await self._session(sample, ctx, self._agents.run_alone)
        if session.fatal_error is not None:
            raise session.fatal_error
        samples = samples_of(sample, session, outcome, ctx.tokenizer)
        _measure(ctx, session)
        return samples

    async def _session(self, sample: Sample, ctx: GenerateContext, run: Run) -> tuple[Session, Outcome]:
        """One session and its agent's outcome. Raises AgentError if another agent in the process may be at fault."""
        bridge = self._bridge(ctx.tokenizer, sample)
        family, unfit = await self._family_of(ctx.tokenizer)
        name = f"{sample.source}:{sample.group_index}:{sample.index}"
        session = Session(ctx, self._limits, bridge, family, misfit=unfit, name=name)
        async with self._gateway.open_session(session) as url:
            return session, await self._outcome(_task(sample, session, url, ctx), session, run)

    async def _outcome(self, task: Task, session: Session, run: Run) -> Outcome:
        """The agent's outcome; returns at once if the run interrupts the session."""
        running = asyncio.create_task(run(task, timeout_s=self._seconds))
        interrupted = asyncio.create_task(session.interrupted.wait())
        try:
            await asyncio.wait({running, interrupted}, return_when=asyncio.FIRST_COMPLETED)
            if session.interrupted.is_set():
                return Outcome()
            verdict = running.result()
            return Outcome(verdict if isinstance(verdict, Result) else Result(verdict))
        except AgentError as error:
            if error.shared:
                raise
            return Outcome(failure=error.reason, detail=error.detail)
        finally:
            for waiter in (running, interrupted):
                waiter.cancel()
            await asyncio.wait({running, interrupted})

    async def _family_of(self, tokenizer: Tokenizer) -> tuple[Family, str]:
        """The family that reads the answers, and why it cannot read the model's calls, if another family can.

        Determined once, in a thread: reading a dozen rendered dialogs for each family lasts up to a second.
        """
        async with self._family_lock:
            if self._family is None:
                self._family = await asyncio.to_thread(_family_of, tokenizer, self._parser)
        return self._family

    def _bridge(self, tokenizer: Tokenizer, sample: Sample) -> Bridge:
        """One bridge for all samples with the same template arguments, so that its proofs are reused."""
        kwargs = sample.apply_chat_template_kwargs
        key = json.dumps(kwargs, sort_keys=True)
        if key not in self._bridges:
            self._bridges[key] = Bridge(tokenizer, kwargs)
        return self._bridges[key]


def _family_of(tokenizer: Tokenizer, parser: str) -> tuple[Family, str]:
    """The same, synchronously; a family without calls if none fits the template."""
    if parser == "auto":
        return find_family(tokenizer, families().values()) or PLAIN, ""
    family = family_named(parser)
    evidence = misfit(tokenizer, family, families().values()) if family.reads_calls else None
    if evidence is None:
        return family, ""
    return family, wrong_parser_message(str(tokenizer), family.name, evidence.family.name, evidence.written)


def _task(sample: Sample, session: Session, url: str, ctx: GenerateContext) -> Task:
    run = ctx.sampling
    sampling = {"temperature": run.temperature, "top_p": run.top_p, "max_tokens": run.max_new_tokens}
    return Task(sample.prompt, sample.label, url, session.key, dict(sample.metadata), ctx.evaluation, sampling=sampling)


def _measure(ctx: GenerateContext, session: Session) -> None:
    counts = session.forest.counts
    values = {"turns": counts.turns, "forks": counts.forks, "tokens": counts.generated, **session.counts}
    for name, value in values.items():
        ctx.measure(name, float(value))
