"""An honest generator, and each way of breaking it."""

import asyncio
import contextlib
import dataclasses
import random
import socket
import time
from collections.abc import Callable, Sequence

from slime_core import Sample, Status
from slime_core.roles import (
    FinishReason,
    GenerateContext,
    GenerateOutput,
    GeneratorSpec,
    SamplingParams,
    Settings,
    Setup,
)
from slime_testing import CharTokenizer, Contract, GeneratorContract

STATUS = {
    FinishReason.STOP: Status.COMPLETED,
    FinishReason.LENGTH: Status.TRUNCATED,
    FinishReason.ABORT: Status.ABORTED,
}


class OneTurn:
    """Good, and open to one change."""

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        prompt = ctx.tokenizer.encode(str(sample.prompt))
        out = await ctx.generate(prompt, ctx.sampling)
        sample.tokens = prompt
        return [self.finish(sample, out)]

    def finish(self, sample: Sample, out: GenerateOutput) -> Sample:
        version = str(out.weight_version)
        sample.append_response_tokens(tokens=out.tokens, log_probs=out.log_probs, weight_version=version)
        sample.status = STATUS[out.finish]
        return sample


class TwoTurns(OneTurn):
    """Also good: a tool answers in between, and the second turn gets what is left of the budget."""

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        (sample,) = await super().__call__(sample, ctx)
        left = ctx.sampling.max_new_tokens - sample.effective_response_length
        if sample.status is not Status.COMPLETED or left <= 0 or ctx.max_turns == 1:
            return [sample]
        sample.append_response_tokens(tokens=ctx.tokenizer.encode("(tool)"), trainable=False)
        out = await ctx.generate(sample.tokens, dataclasses.replace(ctx.sampling, max_new_tokens=left))
        return [self.finish(sample, out)]


class FansOut(OneTurn):
    """Also good: two samples of one execution."""

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        copies = [dataclasses.replace(sample) for _ in range(ctx.max_turns or 2)]
        return [each for copy in copies for each in await super(FansOut, self).__call__(copy, ctx)]


def output(change: Callable[[GenerateOutput], GenerateOutput]) -> type[OneTurn]:
    """Takes another output for the engine's."""

    class Changed(OneTurn):
        def finish(self, sample: Sample, out: GenerateOutput) -> Sample:
            return super().finish(sample, change(out))

    return Changed


def finished(act: Callable[[Sample, GenerateOutput], object]) -> type[OneTurn]:
    """Does something to the finished sample."""

    class Finished(OneTurn):
        def finish(self, sample: Sample, out: GenerateOutput) -> Sample:
            made = super().finish(sample, out)
            act(made, out)
            return made

    return Finished


def before(act: Callable[[], object]) -> type[OneTurn]:
    """Does something before each sample."""

    class Before(OneTurn):
        async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
            act()
            return await super().__call__(sample, ctx)

    return Before


def after(kind: type[OneTurn], act: Callable[[Sample], object]) -> type[OneTurn]:
    """Does something to each returned sample."""

    class After(kind):  # type: ignore[valid-type, misc]  # a class of the caller's
        async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
            made: list[Sample] = await super().__call__(sample, ctx)
            for each in made:
                act(each)
            return made

    return After


def on_failure(kind: type[OneTurn], status: Status | None) -> type[OneTurn]:
    """Returns the sample with this status after a failed call; None: calls once more."""

    class OnFailure(kind):  # type: ignore[valid-type, misc]  # a class of the caller's
        async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
            try:
                return await super().__call__(sample, ctx)  # type: ignore[no-any-return]
            except ConnectionError:
                if kind is not OneTurn and not sample.response_length:
                    raise
                if status is None:
                    return await super().__call__(sample, ctx)  # type: ignore[no-any-return]
                sample.status = status
                return [sample]

    return OnFailure


def called(change: Callable[[GenerateContext], GenerateContext], kind: type[OneTurn] = OneTurn) -> type[OneTurn]:
    """Takes another context for the run's."""

    class Called(kind):  # type: ignore[valid-type, misc]  # a class of the caller's
        async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
            return await super().__call__(sample, change(ctx))  # type: ignore[no-any-return]

    return Called


def sampling(change: Callable[[SamplingParams], SamplingParams]) -> type[OneTurn]:
    """Samples otherwise than the run says."""
    return called(lambda ctx: dataclasses.replace(ctx, sampling=change(ctx.sampling)))


def encode_again(out: GenerateOutput) -> GenerateOutput:
    tokenizer = CharTokenizer()
    tokens = tokenizer.encode(tokenizer.decode(out.tokens))
    return dataclasses.replace(out, tokens=tokens, log_probs=out.log_probs[: len(tokens)])


def leave_pending(sample: Sample, out: GenerateOutput) -> None:
    sample.status = Status.PENDING if out.finish is FinishReason.STOP else sample.status


def always_completed(sample: Sample, out: GenerateOutput) -> None:
    sample.status = Status.TRUNCATED if out.finish is FinishReason.LENGTH else Status.COMPLETED


def guess_log_probs_of_tools(sample: Sample) -> None:
    pairs = zip(sample.loss_mask or (), sample.rollout_log_probs or (), strict=True)
    sample.rollout_log_probs = [value if bit else -1.0 for bit, value in pairs]


def leave_a_task(sample: Sample) -> None:
    if sample.status is Status.COMPLETED:
        TASKS.append(asyncio.ensure_future(asyncio.sleep(60)))


def complete_a_later_abort(sample: Sample) -> None:
    if sample.status is Status.ABORTED and len(sample.weight_versions) > 1:
        sample.status = Status.COMPLETED


class TrainsOnly(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        return [] if ctx.evaluation else await super().__call__(sample, ctx)


class RetriesOnTop(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        try:
            return await super().__call__(sample, ctx)
        except ConnectionError:
            (first,) = await super().__call__(sample, ctx)
            first.append_response_tokens(tokens=[1], trainable=False)
            return [first]


class SharesState(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        self.prompt = ctx.tokenizer.encode(str(sample.prompt))
        out = await ctx.generate(self.prompt, ctx.sampling)
        sample.tokens = self.prompt
        return [self.finish(sample, out)]


class GoesOnWhenCancelled(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            sample.metadata["late"] = True
        return await super().__call__(sample, ctx)


class AsksUntilItIsServed(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        prompt = ctx.tokenizer.encode(str(sample.prompt))
        out = await ctx.generate(prompt, ctx.sampling)
        while out.finish is FinishReason.ABORT:
            out = await ctx.generate(prompt, ctx.sampling)
        sample.tokens = prompt
        return [self.finish(sample, out)]


class Serves(OneTurn):
    """Also good: holds a task from start to close, and notes an answer as it came."""

    def __init__(self) -> None:
        self.server: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.server = asyncio.create_task(asyncio.sleep(60))

    async def close(self) -> None:
        if self.server is not None:
            self.server.cancel()

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        assert self.server is not None
        prompt = ctx.tokenizer.encode(str(sample.prompt))
        out = await ctx.generate(prompt)
        sample.tokens = prompt
        sample.append_response_tokens(output=out)
        sample.status = STATUS[out.finish]
        return [sample]


class AsksTwiceAtOnce(OneTurn):
    """Also good: two named calls at once, a sample of each, and the second one is what counts."""

    names: tuple[str | None, ...] = ("first", "second")

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        prompt = ctx.tokenizer.encode(str(sample.prompt))
        async with asyncio.TaskGroup() as group:
            asked = [ctx.generate(prompt, ctx.sampling, turn=name) for name in self.names[: ctx.max_turns]]
            calls = [group.create_task(each) for each in asked]  # type: ignore[arg-type]
        copies = [dataclasses.replace(sample, tokens=prompt, metadata=dict(sample.metadata)) for _ in calls]
        copies[-1].metadata["main"] = True
        return [self.finish(copy, call.result()) for copy, call in zip(copies, calls, strict=True)]


class KeepsItsServer(Serves):
    async def close(self) -> None:
        TASKS.append(self.server)  # type: ignore[arg-type]


class UsesATool(OneTurn):
    """Also good: each "ask" of the model is answered by a tool, and all turns have one budget."""

    tool = "(tool)"

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        sample.tokens = ctx.tokenizer.encode(str(sample.prompt))
        for turn in range(1, (ctx.max_turns or 8) + 1):
            out = await self.turn(sample, ctx)
            self.note(sample, out)
            sample.status = STATUS[out.finish]
            asks = "ask" in ctx.tokenizer.decode(out.tokens) and out.finish is FinishReason.STOP
            if not asks or turn == ctx.max_turns or self.left(sample, ctx) < 8 + len(self.tool):
                break
            await self.use(sample, ctx)
        return [sample]

    def left(self, sample: Sample, ctx: GenerateContext) -> int:
        return ctx.sampling.max_new_tokens - sample.response_length

    async def turn(self, sample: Sample, ctx: GenerateContext) -> GenerateOutput:
        left = ctx.sampling.max_new_tokens - sample.response_length
        return await ctx.generate(sample.tokens, dataclasses.replace(ctx.sampling, max_new_tokens=left))

    def note(self, sample: Sample, out: GenerateOutput) -> None:
        sample.append_response_tokens(output=out)

    async def use(self, sample: Sample, ctx: GenerateContext) -> None:
        sample.append_response_tokens(tokens=ctx.tokenizer.encode(self.tool), text=self.tool, trainable=False)


class MasksOneTooFew(UsesATool):
    async def use(self, sample: Sample, ctx: GenerateContext) -> None:
        await super().use(sample, ctx)
        mask = list(sample.loss_mask or ())
        mask[-1] = 1
        sample.loss_mask = mask


class KnowsItsFirstWeights(UsesATool):
    def note(self, sample: Sample, out: GenerateOutput) -> None:
        super().note(sample, out)
        sample.weight_versions, sample.weight_version_ends = sample.weight_versions[:1], [sample.response_length]


class TriesAnAbortedTurnAgain(UsesATool):
    async def turn(self, sample: Sample, ctx: GenerateContext) -> GenerateOutput:
        out = await super().turn(sample, ctx)
        while sample.response_length and out.finish is FinishReason.ABORT:
            out = await super().turn(sample, ctx)
        return out


class ForgetsTheTool(UsesATool):
    async def turn(self, sample: Sample, ctx: GenerateContext) -> GenerateOutput:
        shown = [*sample.tokens, *(ctx.tokenizer.encode(self.tool) if sample.response_length else ())]
        left = ctx.sampling.max_new_tokens - sample.response_length
        return await ctx.generate(shown, dataclasses.replace(ctx.sampling, max_new_tokens=left))

    async def use(self, sample: Sample, ctx: GenerateContext) -> None:
        pass


class WatchesItself(OneTurn):
    def __init__(self) -> None:
        with contextlib.suppress(RuntimeError):  # no loop runs
            self.watch = asyncio.get_running_loop().create_task(asyncio.sleep(60))


class Shields(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        prompt = ctx.tokenizer.encode(str(sample.prompt))
        out = await asyncio.shield(asyncio.ensure_future(ctx.generate(prompt, ctx.sampling)))  # type: ignore[arg-type]
        sample.tokens = prompt
        return [self.finish(sample, out)]


TASKS: list["asyncio.Future[None]"] = []


SCRIPT = ("ask", "ask more", "done")


def contract_of(kind: type[OneTurn], script: Sequence[str] = ()) -> type[Contract]:
    def factory(settings: Settings, setup: Setup) -> OneTurn:
        return kind()

    class Subject(GeneratorContract):
        choice = GeneratorSpec("subject", factory)
        answers = script

    return Subject


def scripted(kind: type[OneTurn]) -> type[Contract]:
    return contract_of(kind, SCRIPT)


GOOD = [contract_of(kind) for kind in (OneTurn, TwoTurns, FansOut, on_failure(OneTurn, None), Serves, AsksTwiceAtOnce)]
GOOD += [scripted(UsesATool)]
MUTANTS = {
    "GEN-001": [
        contract_of(type("NotAsync", (OneTurn,), {"__call__": lambda *arguments: OneTurn.__call__(*arguments)}))
    ],
    "GEN-002": [contract_of(finished(leave_pending))],
    "GEN-003": [
        contract_of(output(encode_again)),
        contract_of(output(lambda out: dataclasses.replace(out, weight_version=0))),
        scripted(MasksOneTooFew),
        scripted(KnowsItsFirstWeights),
    ],
    "GEN-004": [contract_of(finished(lambda sample, out: setattr(sample, "tokens", sample.tokens[1:])))],
    "GEN-005": [
        contract_of(sampling(lambda asked: dataclasses.replace(asked, max_new_tokens=2 * asked.max_new_tokens)))
    ],
    "GEN-006": [contract_of(finished(always_completed)), scripted(after(UsesATool, complete_a_later_abort))],
    "GEN-007": [contract_of(SharesState)],
    "GEN-008": [contract_of(on_failure(OneTurn, Status.COMPLETED)), scripted(on_failure(UsesATool, Status.TRUNCATED))],
    "GEN-009": [contract_of(finished(lambda sample, out: setattr(sample, "prompt", f"{sample.prompt} Think.")))],
    "GEN-010": [contract_of(finished(lambda sample, out: setattr(sample, "rollout_id", 41)))],
    "GEN-011": [contract_of(GoesOnWhenCancelled)],
    "GEN-012": [contract_of(AsksUntilItIsServed), scripted(TriesAnAbortedTurnAgain)],
    "GEN-013": [contract_of(after(TwoTurns, guess_log_probs_of_tools))],
    "GEN-014": [contract_of(RetriesOnTop)],
    "GEN-015": [contract_of(before(lambda: time.sleep(0.3)))],
    "GEN-016": [
        contract_of(after(OneTurn, leave_a_task)),
        contract_of(finished(lambda sample, out: socket.socket().detach())),
        contract_of(WatchesItself),
    ],
    "GEN-017": [contract_of(sampling(lambda asked: dataclasses.replace(asked, temperature=0.0)))],
    "GEN-018": [contract_of(TrainsOnly)],
    "GEN-019": [contract_of(type("Nameless", (AsksTwiceAtOnce,), {"names": (None, None)}))],
    "GEN-020": [contract_of(KeepsItsServer)],
    "GEN-021": [contract_of(on_failure(OneTurn, Status.FAILED))],
    "GEN-022": [
        scripted(called(lambda ctx: ctx if ctx.max_turns == 1 else dataclasses.replace(ctx, max_turns=None), UsesATool))
    ],
    "GEN-023": [contract_of(output(lambda out: dataclasses.replace(out, weight_version=out.versions[-1][1])))],
    "GEN-024": [
        contract_of(after(FansOut, lambda sample: setattr(sample, "metadata", {**sample.metadata, "main": True})))
    ],
    "GEN-025": [scripted(OneTurn)],
    "GEN-026": [scripted(ForgetsTheTool)],
    "GEN-027": [
        scripted(
            type("SpendsItEachTurn", (UsesATool,), {"turn": lambda self, sample, ctx: ctx.generate(sample.tokens)})
        )
    ],
    "GEN-028": [contract_of(Shields)],
    "GEN-029": [contract_of(before(lambda: random.seed(0)))],
}
