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


class NotAsync(OneTurn):
    def __call__(self, sample: Sample, ctx: GenerateContext) -> object:  # type: ignore[override]
        return super().__call__(sample, ctx)


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


def sampling(change: Callable[[SamplingParams], SamplingParams]) -> type[OneTurn]:
    """Samples otherwise than the run says."""

    class Otherwise(OneTurn):
        async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
            return await super().__call__(sample, dataclasses.replace(ctx, sampling=change(ctx.sampling)))

    return Otherwise


def encode_again(out: GenerateOutput) -> GenerateOutput:
    tokenizer = CharTokenizer()
    tokens = tokenizer.encode(tokenizer.decode(out.tokens))
    return dataclasses.replace(out, tokens=tokens, log_probs=out.log_probs[: len(tokens)])


def leave_pending(sample: Sample, out: GenerateOutput) -> None:
    if out.finish is FinishReason.STOP:
        sample.status = Status.PENDING


def always_completed(sample: Sample, out: GenerateOutput) -> None:
    sample.status = Status.TRUNCATED if out.finish is FinishReason.LENGTH else Status.COMPLETED


def cut_the_prompt(sample: Sample, out: GenerateOutput) -> None:
    sample.tokens = sample.tokens[1:]


class TrainsOnly(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        return [] if ctx.evaluation else await super().__call__(sample, ctx)


class SeedsItsTool(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        random.seed(0)
        return await super().__call__(sample, ctx)


class SharesState(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        self.prompt = ctx.tokenizer.encode(str(sample.prompt))
        out = await ctx.generate(self.prompt, ctx.sampling)
        sample.tokens = self.prompt
        return [self.finish(sample, out)]


class CallsFailureASuccess(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        try:
            return await super().__call__(sample, ctx)
        except ConnectionError:
            sample.status = Status.COMPLETED
            return [sample]


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


class GuessesToolLogProbs(TwoTurns):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        (sample,) = await super().__call__(sample, ctx)
        pairs = zip(sample.loss_mask or (), sample.rollout_log_probs or (), strict=True)
        sample.rollout_log_probs = [value if bit else -1.0 for bit, value in pairs]
        return [sample]


class Retries(OneTurn):
    """Also good: asks once more after a failure."""

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        try:
            return await super().__call__(sample, ctx)
        except ConnectionError:
            return await super().__call__(sample, ctx)


class RetriesOnTop(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        try:
            return await super().__call__(sample, ctx)
        except ConnectionError:
            (first,) = await super().__call__(sample, ctx)
            first.append_response_tokens(tokens=[1], trainable=False)
            return [first]


class Blocks(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        time.sleep(0.3)  # noqa: ASYNC251
        return await super().__call__(sample, ctx)


class LeavesTasks(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        samples = await super().__call__(sample, ctx)
        if samples[0].status is Status.COMPLETED:
            TASKS.append(asyncio.ensure_future(asyncio.sleep(60)))
        return samples


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


class AsksTwiceNamelessly(AsksTwiceAtOnce):
    names = (None, None)


class KeepsItsServer(Serves):
    async def close(self) -> None:
        TASKS.append(self.server)  # type: ignore[arg-type]


class FailsSilently(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        try:
            return await super().__call__(sample, ctx)
        except ConnectionError:
            sample.status = Status.FAILED
            return [sample]


class MarksAll(FansOut):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        made = await super().__call__(sample, ctx)
        for each in made:
            each.metadata = {**each.metadata, "main": True}
        return made


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


class CallsALaterAbortAnEnd(UsesATool):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        (sample,) = await super().__call__(sample, ctx)
        if sample.status is Status.ABORTED and len(sample.weight_versions) > 1:
            sample.status = Status.COMPLETED
        return [sample]


class CallsALaterFailureAnEnd(UsesATool):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        try:
            return await super().__call__(sample, ctx)
        except ConnectionError:
            if not sample.response_length:
                raise
            sample.status = Status.TRUNCATED
            return [sample]


class TriesAnAbortedTurnAgain(UsesATool):
    async def turn(self, sample: Sample, ctx: GenerateContext) -> GenerateOutput:
        out = await super().turn(sample, ctx)
        while sample.response_length and out.finish is FinishReason.ABORT:
            out = await super().turn(sample, ctx)
        return out


class KnowsNoLaterLimit(UsesATool):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        return await super().__call__(sample, ctx if ctx.max_turns == 1 else dataclasses.replace(ctx, max_turns=None))


class ForgetsTheTool(UsesATool):
    async def turn(self, sample: Sample, ctx: GenerateContext) -> GenerateOutput:
        shown = [*sample.tokens, *(ctx.tokenizer.encode(self.tool) if sample.response_length else ())]
        left = ctx.sampling.max_new_tokens - sample.response_length
        return await ctx.generate(shown, dataclasses.replace(ctx.sampling, max_new_tokens=left))

    async def use(self, sample: Sample, ctx: GenerateContext) -> None:
        pass


class SpendsItEachTurn(UsesATool):
    async def turn(self, sample: Sample, ctx: GenerateContext) -> GenerateOutput:
        return await ctx.generate(sample.tokens)


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


GOOD = [contract_of(kind) for kind in (OneTurn, TwoTurns, FansOut, Retries, Serves, AsksTwiceAtOnce)]
GOOD += [scripted(UsesATool)]
MUTANTS = {
    "GEN-001": [contract_of(NotAsync)],
    "GEN-002": [contract_of(finished(leave_pending))],
    "GEN-003": [
        contract_of(output(encode_again)),
        contract_of(output(lambda out: dataclasses.replace(out, weight_version=0))),
        scripted(MasksOneTooFew),
        scripted(KnowsItsFirstWeights),
    ],
    "GEN-004": [contract_of(finished(cut_the_prompt))],
    "GEN-005": [
        contract_of(sampling(lambda asked: dataclasses.replace(asked, max_new_tokens=2 * asked.max_new_tokens)))
    ],
    "GEN-006": [contract_of(finished(always_completed)), scripted(CallsALaterAbortAnEnd)],
    "GEN-007": [contract_of(SharesState)],
    "GEN-008": [contract_of(CallsFailureASuccess), scripted(CallsALaterFailureAnEnd)],
    "GEN-009": [contract_of(finished(lambda sample, out: setattr(sample, "prompt", f"{sample.prompt} Think.")))],
    "GEN-010": [contract_of(finished(lambda sample, out: setattr(sample, "rollout_id", 41)))],
    "GEN-011": [contract_of(GoesOnWhenCancelled)],
    "GEN-012": [contract_of(AsksUntilItIsServed), scripted(TriesAnAbortedTurnAgain)],
    "GEN-013": [contract_of(GuessesToolLogProbs)],
    "GEN-014": [contract_of(RetriesOnTop)],
    "GEN-015": [contract_of(Blocks)],
    "GEN-016": [
        contract_of(LeavesTasks),
        contract_of(finished(lambda sample, out: socket.socket().detach())),
        contract_of(WatchesItself),
    ],
    "GEN-017": [contract_of(sampling(lambda asked: dataclasses.replace(asked, temperature=0.0)))],
    "GEN-018": [contract_of(TrainsOnly)],
    "GEN-019": [contract_of(AsksTwiceNamelessly)],
    "GEN-020": [contract_of(KeepsItsServer)],
    "GEN-021": [contract_of(FailsSilently)],
    "GEN-022": [scripted(KnowsNoLaterLimit)],
    "GEN-023": [contract_of(output(lambda out: dataclasses.replace(out, weight_version=out.versions[-1][1])))],
    "GEN-024": [contract_of(MarksAll)],
    "GEN-025": [scripted(OneTurn)],
    "GEN-026": [scripted(ForgetsTheTool)],
    "GEN-027": [scripted(SpendsItEachTurn)],
    "GEN-028": [contract_of(Shields)],
    "GEN-029": [contract_of(SeedsItsTool)],
}
