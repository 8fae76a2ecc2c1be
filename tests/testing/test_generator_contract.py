"""Each mutant is the one-turn generator with one thing wrong."""

import asyncio
import dataclasses

import pytest

from slime_core import Sample, Settings, Setup, Status
from slime_core.roles import FinishReason, GenerateContext, GenerateOutput, GeneratorSpec
from slime_core.testing import CharTokenizer, CheckStatus, GeneratorContract, ScriptedEngine, make_pending

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


MUTANTS: dict[type[OneTurn], str] = {
    NotAsync: "GEN-001",
    StaysPending: "GEN-002",
    EncodesAgain: "GEN-003",
    InventsLogProbs: "GEN-003",
    OldVersion: "GEN-003",
    CutsThePrompt: "GEN-004",
    AsksForMore: "GEN-005",
    AlwaysCompleted: "GEN-006",
    SharesState: "GEN-007",
    LeavesATask: "GEN-008",
    CallsFailureASuccess: "GEN-008",
}


def contract_of(kind: type[OneTurn]) -> type[GeneratorContract]:
    def factory(settings: Settings, setup: Setup) -> OneTurn:
        return kind()

    class Subject(GeneratorContract):
        choice = GeneratorSpec("subject", factory)

    return Subject


def failing(kind: type[OneTurn]) -> set[str]:
    return {result.identity for result in contract_of(kind).report() if result.status is CheckStatus.FAILED}


@pytest.mark.parametrize("kind", [OneTurn, TwoTurns, FansOut])
def test_a_good_generator_passes(kind: type[OneTurn]) -> None:
    assert failing(kind) == set()


def test_every_check_has_a_mutant() -> None:
    assert set(MUTANTS.values()) == set(GeneratorContract.checks())


@pytest.mark.parametrize("kind", MUTANTS)
def test_a_mutant_fails_its_check(kind: type[OneTurn]) -> None:
    assert failing(kind) == {MUTANTS[kind]}


@pytest.mark.parametrize(
    ("finish", "length"), [(FinishReason.STOP, 4), (FinishReason.LENGTH, 8), (FinishReason.ABORT, 3)]
)
def test_the_scripted_engine_ends_as_it_is_told(finish: FinishReason, length: int) -> None:
    engine = ScriptedEngine(finish=finish)
    ctx = engine.context(max_new_tokens=8)
    out = asyncio.run(engine.generate(ctx.tokenizer.encode("2 + 2"), ctx.sampling))
    assert (out.finish, len(out.tokens), len(out.log_probs)) == (finish, length, length)
    assert (out.tokens[-1] in ctx.tokenizer.eos_token_ids) == (finish is FinishReason.STOP)


def test_the_character_tokenizer_renders_messages() -> None:
    tokenizer = CharTokenizer()
    text = tokenizer.apply_chat_template([{"role": "user", "content": "2 + 2?"}])
    assert text == "user: 2 + 2?\nassistant: "
    assert tokenizer.decode([*tokenizer.encode(text), 0]) == text


def test_a_pending_sample_is_as_a_source_draws_it() -> None:
    assert make_pending(prompt="2 + 2").status is Status.PENDING
