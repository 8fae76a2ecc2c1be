"""An honest generator, and each way of breaking it."""

import asyncio
import dataclasses
import socket
import time

from slime_core import Sample, Settings, Setup, Status
from slime_core.roles import FinishReason, GenerateContext, GenerateOutput, GeneratorSpec
from slime_core.testing import CharTokenizer, Contract, GeneratorContract

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
        if sample.status is not Status.COMPLETED or left <= 0:
            return [sample]
        sample.append_response_tokens(tokens=ctx.tokenizer.encode("(tool)"), trainable=False)
        out = await ctx.generate(sample.tokens, dataclasses.replace(ctx.sampling, max_new_tokens=left))
        return [self.finish(sample, out)]


class FansOut(OneTurn):
    """Also good: two samples of one execution."""

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        copies = [dataclasses.replace(sample) for _ in range(2)]
        return [each for copy in copies for each in await super(FansOut, self).__call__(copy, ctx)]


class NotAsync(OneTurn):
    def __call__(self, sample: Sample, ctx: GenerateContext) -> object:  # type: ignore[override]
        return super().__call__(sample, ctx)


class StaysPending(OneTurn):
    def finish(self, sample: Sample, out: GenerateOutput) -> Sample:
        finished = super().finish(sample, out)
        if out.finish is FinishReason.STOP:
            finished.status = Status.PENDING
        return finished


class EncodesAgain(OneTurn):
    def finish(self, sample: Sample, out: GenerateOutput) -> Sample:
        tokenizer = CharTokenizer()
        tokens = tokenizer.encode(tokenizer.decode(out.tokens))
        return super().finish(sample, dataclasses.replace(out, tokens=tokens, log_probs=out.log_probs[: len(tokens)]))


class InventsLogProbs(OneTurn):
    def finish(self, sample: Sample, out: GenerateOutput) -> Sample:
        return super().finish(sample, dataclasses.replace(out, log_probs=[0.0] * len(out.tokens)))


class OldVersion(OneTurn):
    def finish(self, sample: Sample, out: GenerateOutput) -> Sample:
        return super().finish(sample, dataclasses.replace(out, weight_version=0))


class CutsThePrompt(OneTurn):
    def finish(self, sample: Sample, out: GenerateOutput) -> Sample:
        sample.tokens = sample.tokens[1:]
        return super().finish(sample, out)


class AsksForMore(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        sampling = dataclasses.replace(ctx.sampling, max_new_tokens=2 * ctx.sampling.max_new_tokens)
        return await super().__call__(sample, dataclasses.replace(ctx, sampling=sampling))


class AlwaysCompleted(OneTurn):
    def finish(self, sample: Sample, out: GenerateOutput) -> Sample:
        finished = super().finish(sample, out)
        finished.status = Status.TRUNCATED if out.finish is FinishReason.LENGTH else Status.COMPLETED
        return finished


class SharesState(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        self.prompt = ctx.tokenizer.encode(str(sample.prompt))
        out = await ctx.generate(self.prompt, ctx.sampling)
        sample.tokens = self.prompt
        return [self.finish(sample, out)]


class LeavesATask(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        watch = asyncio.create_task(asyncio.sleep(60))
        samples = await super().__call__(sample, ctx)
        watch.cancel()
        return samples


class CallsFailureASuccess(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        try:
            return await super().__call__(sample, ctx)
        except ConnectionError:
            sample.status = Status.COMPLETED
            return [sample]


class WritesIntoThePrompt(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        (sample,) = await super().__call__(sample, ctx)
        sample.prompt = f"{sample.prompt} Think step by step."
        return [sample]


class NumbersItsRollouts(OneTurn):
    def finish(self, sample: Sample, out: GenerateOutput) -> Sample:
        sample.rollout_id = 41
        return super().finish(sample, out)


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


class WatchesAborts(OneTurn):
    def finish(self, sample: Sample, out: GenerateOutput) -> Sample:
        if out.finish is FinishReason.ABORT:
            TASKS.append(asyncio.ensure_future(asyncio.sleep(60)))
        return super().finish(sample, out)


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


class LeavesSockets(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        socket.socket().detach()
        return await super().__call__(sample, ctx)


class Greedy(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        sampling = dataclasses.replace(ctx.sampling, temperature=0.0)
        return await super().__call__(sample, dataclasses.replace(ctx, sampling=sampling))


class TrainsOnly(OneTurn):
    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        return [] if ctx.evaluation else await super().__call__(sample, ctx)


TASKS: list["asyncio.Future[None]"] = []


def contract_of(kind: type[OneTurn]) -> type[Contract]:
    def factory(settings: Settings, setup: Setup) -> OneTurn:
        return kind()

    class Subject(GeneratorContract):
        choice = GeneratorSpec("subject", factory)

    return Subject


GOOD = [contract_of(kind) for kind in (OneTurn, TwoTurns, FansOut, Retries)]
MUTANTS = {
    "GEN-001": [contract_of(NotAsync)],
    "GEN-002": [contract_of(StaysPending)],
    "GEN-003": [contract_of(EncodesAgain), contract_of(InventsLogProbs), contract_of(OldVersion)],
    "GEN-004": [contract_of(CutsThePrompt)],
    "GEN-005": [contract_of(AsksForMore)],
    "GEN-006": [contract_of(AlwaysCompleted)],
    "GEN-007": [contract_of(SharesState)],
    "GEN-008": [contract_of(LeavesATask), contract_of(CallsFailureASuccess)],
    "GEN-009": [contract_of(WritesIntoThePrompt)],
    "GEN-010": [contract_of(NumbersItsRollouts)],
    "GEN-011": [contract_of(GoesOnWhenCancelled)],
    "GEN-012": [contract_of(AsksUntilItIsServed), contract_of(WatchesAborts)],
    "GEN-013": [contract_of(GuessesToolLogProbs)],
    "GEN-014": [contract_of(RetriesOnTop)],
    "GEN-015": [contract_of(Blocks)],
    "GEN-016": [contract_of(LeavesTasks), contract_of(LeavesSockets)],
    "GEN-017": [contract_of(Greedy)],
    "GEN-018": [contract_of(TrainsOnly)],
}
