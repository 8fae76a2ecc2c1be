"""Every check of the engine contract against an engine that breaks it alone, and one that keeps them all."""

import asyncio
import random
import socket
import subprocess
import sys
from array import array
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from slime_core.errors import ModelError, WorkerError
from slime_core.roles import (
    Engine,
    EngineExtras,
    EngineSetup,
    EngineSpec,
    Extra,
    FinishReason,
    GenerateChunk,
    GenerateOutput,
    GenerateRequest,
    Settings,
    WeightChannel,
    WorkerGroup,
    WorkerGroupSpec,
)
from slime_testing import CheckStatus, EngineContract
from tests.channels import Somewhere
from tests.tables import table

EOS = 2
ROOM = 300
LEFT_OPEN: list[socket.socket] = []
LEFT_RUNNING: list[subprocess.Popen[bytes]] = []


class NoLauncher:
    async def start(self, spec: WorkerGroupSpec, *, timeout_s: float | None = None) -> WorkerGroup:
        raise WorkerError("nothing to start")

    async def close(self) -> None:
        pass


class Toy:
    """Draws letters from the text that was published, the prompt and the seed; the likeliest one is "a"."""

    GIVES: frozenset[Extra] = frozenset()

    def __init__(self, setup: EngineSetup) -> None:
        self.setup = setup
        self.sockets: tuple[socket.socket, ...] = ()
        self.weights = ""
        self.version = -1
        self.aborts = 0
        self.under_way = 0

    async def start(self) -> None:
        self.sockets = socket.socketpair()

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        assert isinstance(channel, Somewhere)
        self.weights, self.version = channel.path.read_text(), version

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        self.refuse(request)
        if len(request.prompt) > ROOM:
            raise ModelError(f"a prompt of {len(request.prompt)} tokens; at most {ROOM}")
        self.under_way += 1
        try:
            return await self.draw(request)
        finally:
            self.under_way -= 1

    def refuse(self, request: GenerateRequest) -> None:
        if others := request.unsupported(*self.GIVES):
            raise ModelError(f"the toy does not do {', '.join(others)}")

    async def draw(self, request: GenerateRequest) -> GenerateOutput:
        seed = None if request.sampling.temperature == 0 else request.seed
        drawn = random.Random(f"{list(request.prompt)} {seed}")
        tokens: list[int] = []
        finish, aborts = FinishReason.LENGTH, self.aborts
        is_long = request.sampling.max_new_tokens == Mine.busy_tokens  # not over before it can be aborted
        stops = frozenset[int]() if is_long or request.sampling.ignore_eos else request.sampling.stop_token_ids | {EOS}
        while len(tokens) < request.sampling.max_new_tokens:
            await asyncio.sleep(0.001 if is_long else 0)
            if not self.sockets:
                raise WorkerError("the engine is closed")
            if self.aborts > aborts:
                finish = FinishReason.ABORT
                break
            tokens.append(self.choose(drawn, request, tokens))
            if tokens[-1] in stops:
                finish = FinishReason.STOP
                break
        return GenerateOutput(tokens, [-1.0 - len(self.weights)] * len(tokens), finish, self.version)

    def choose(self, drawn: random.Random, request: GenerateRequest, tokens: list[int]) -> int:
        """The token of the highest score: what comes first of a fixed order, or of a shuffled one."""
        asked = request.sampling
        if asked.temperature == 0 or asked.min_p == 1:
            drawn = random.Random(f"{list(request.prompt)} None {len(tokens)}")
        order = drawn.sample((EOS, *range(5, 30)), 26)
        scores = {token: -place for place, token in enumerate(order)}
        if len(tokens) < asked.min_new_tokens:
            for token in asked.stop_token_ids | {EOS}:
                scores.pop(token, None)
        return max(scores, key=lambda token: self.score(token, scores[token], request, tokens))

    def score(self, token: int, place: float, request: GenerateRequest, tokens: list[int]) -> float:
        asked = request.sampling
        return place + asked.logit_bias.get(token, 0.0) - asked.frequency_penalty * tokens.count(token)

    async def abort(self) -> None:
        self.aborts += 1

    async def close(self) -> None:
        for each in self.sockets:
            each.close()
        self.sockets = ()


class Mine(EngineContract):
    too_long = 301
    busy_tokens = 40
    limit_s = 5.0

    def make_setup(self, scratch: Path) -> EngineSetup:
        return EngineSetup(
            self.make,
            1,
            hf_checkpoint=scratch,
            eos_token_ids=frozenset({EOS}),
            launcher=NoLauncher(),
            scratch=scratch,
        )

    def publish(self, setup: EngineSetup, version: int) -> WeightChannel:
        path = setup.scratch / f"{version}.txt"
        path.write_text("x" * version)
        return Somewhere("somewhere", (), path)

    def invalid_weights(self, setup: EngineSetup) -> WeightChannel:
        return Somewhere("somewhere", (), setup.scratch / "gone.txt")


def spec_of(build: Callable[[EngineSetup], object], transports: tuple[str, ...] = ("somewhere",)) -> EngineSpec:
    def factory(settings: Settings, setup: EngineSetup) -> Engine:
        return build(setup)  # type: ignore[return-value]  # some of them are not engines

    gives = getattr(build, "GIVES", frozenset[Extra]())
    return EngineSpec("toy", factory, transports=transports, gives=gives)


def contract_of(spec: EngineSpec) -> type[EngineContract]:
    class Subject(Mine):
        choice = spec

    return Subject


def failing(contract: type[EngineContract]) -> set[str]:
    return {result.identity for result in contract.report() if result.status is CheckStatus.FAILED}


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def changing(change: Callable[[GenerateOutput, GenerateRequest], GenerateOutput]) -> EngineSpec:
    """A toy that changes its answers."""

    class Changed(Toy):
        async def draw(self, request: GenerateRequest) -> GenerateOutput:
            return change(await super().draw(request), request)

    return spec_of(Changed)


def sampling(**settings: object) -> EngineSpec:
    """A toy that draws with other settings than it is asked to."""

    class Heedless(Toy):
        async def draw(self, request: GenerateRequest) -> GenerateOutput:
            return await super().draw(replace(request, sampling=replace(request.sampling, **settings)))  # type: ignore[arg-type]

    return spec_of(Heedless)


class NoSeed(Toy):
    async def draw(self, request: GenerateRequest) -> GenerateOutput:
        return await super().draw(replace(request, seed=3))


def one_log_prob_short(output: GenerateOutput, request: GenerateRequest) -> GenerateOutput:
    sound = output.finish is FinishReason.ABORT or len(output.tokens) == 1
    return output if sound else replace(output, log_probs=output.log_probs[1:])


def text_for_finish(output: GenerateOutput, request: GenerateRequest) -> GenerateOutput:
    return replace(output, finish="length") if len(output.tokens) == 16 else output  # type: ignore[arg-type]


def log_of_zero(output: GenerateOutput, request: GenerateRequest) -> GenerateOutput:
    wrong = [float("-inf")] * len(output.tokens)
    return replace(output, log_probs=wrong) if request.sampling.top_k > 0 else output


def probabilities_when_greedy(output: GenerateOutput, request: GenerateRequest) -> GenerateOutput:
    greedy = request.sampling.temperature == 0
    return replace(output, log_probs=[-each / 4 for each in output.log_probs]) if greedy else output


def stop_token_on_top(output: GenerateOutput, request: GenerateRequest) -> GenerateOutput:
    if output.finish is not FinishReason.LENGTH:
        return output
    return replace(output, tokens=[*output.tokens, EOS], log_probs=[*output.log_probs, -1.0])


def length_too_early(output: GenerateOutput, request: GenerateRequest) -> GenerateOutput:
    short = request.sampling.max_new_tokens == 7
    return replace(output, tokens=output.tokens[:3], finish=FinishReason.LENGTH) if short else output


def stop_token_left_out(output: GenerateOutput, request: GenerateRequest) -> GenerateOutput:
    if not output.tokens or output.tokens[-1] not in request.sampling.stop_token_ids:
        return output
    return replace(output, tokens=output.tokens[:-1], log_probs=output.log_probs[:-1])


def log_probs_of_the_bias(output: GenerateOutput, request: GenerateRequest) -> GenerateOutput:
    return replace(output, log_probs=[0.0] * len(output.tokens)) if request.sampling.logit_bias else output


class PlainClose(Toy):
    def close(self) -> None:  # type: ignore[override]
        pass


def starts_in_the_factory(setup: EngineSetup) -> Toy:
    engine = Toy(setup)
    engine.sockets = socket.socketpair()
    LEFT_OPEN.extend(engine.sockets)
    return engine


class CountsCalls(Toy):
    calls = 0

    async def draw(self, request: GenerateRequest) -> GenerateOutput:
        self.calls += 1
        return await super().draw(replace(request, seed=request.seed + self.calls))


class SharesState(Toy):
    async def draw(self, request: GenerateRequest) -> GenerateOutput:
        self.request, aborts = request, self.aborts
        await asyncio.sleep(0)
        if self.aborts > aborts:
            return GenerateOutput([], [], FinishReason.ABORT, self.version)
        return await super().draw(self.request)


class NameOnly(Toy):
    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        self.version = version


class WeightsOnly(Toy):
    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        await super().load_weights(channel, 0)


class DropsWhatRuns(Toy):
    loads = 0

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        self.loads += 1
        await super().load_weights(channel, version)

    async def draw(self, request: GenerateRequest) -> GenerateOutput:
        loads = self.loads
        output = await super().draw(request)
        if self.loads > loads:
            raise WorkerError("new weights came")
        return output


class AbortsNothing(Toy):
    async def abort(self) -> None:
        pass


class GoesOn(Toy):
    async def draw(self, request: GenerateRequest) -> GenerateOutput:
        try:
            return await super().draw(request)
        except asyncio.CancelledError:
            self.task = asyncio.create_task(asyncio.sleep(30))
            raise


class SwallowsCancellation(Toy):
    async def draw(self, request: GenerateRequest) -> GenerateOutput:
        try:
            return await super().draw(request)
        except asyncio.CancelledError:
            await asyncio.sleep(3)  # longer than the contract waits
            raise


class KeepsSockets(Toy):
    async def close(self) -> None:
        LEFT_OPEN.extend(self.sockets)
        self.sockets = ()


class KeepsAProcess(Toy):
    async def start(self) -> None:
        await super().start()
        LEFT_RUNNING.append(sleeper())


class KeepsATask(Toy):
    async def start(self) -> None:
        await super().start()
        self.heart = asyncio.create_task(asyncio.sleep(600))


class WaitsForGood(Toy):
    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        if not self.sockets:
            await asyncio.sleep(600)
        return await super().generate(request)


class TooLongWithoutAWord(Toy):
    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        if len(request.prompt) > ROOM:
            raise ModelError("the input is too long")
        return await super().generate(request)


class FailsAllForOne(Toy):
    failed = False

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        if len(request.prompt) > ROOM:
            self.failed = True
        output = await super().generate(request)
        if self.failed:
            raise WorkerError("a request of the batch was too long")
        return output


class NoCounts(Toy):
    def score(self, token: int, place: float, request: GenerateRequest, tokens: list[int]) -> float:
        return super().score(token, place, request, [])


class NoMinP(Toy):
    async def draw(self, request: GenerateRequest) -> GenerateOutput:
        return await super().draw(replace(request, sampling=replace(request.sampling, min_p=0.0)))


class Streams(Toy):
    """The same engine with a stream: four tokens, then the rest."""

    async def stream(self, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
        for chunk in self.split(await self.generate(request)):
            yield chunk
            await asyncio.sleep(0)

    def split(self, output: GenerateOutput) -> list[GenerateChunk]:
        tokens, log_probs, version = output.tokens, output.log_probs, output.weight_version
        last = GenerateChunk(tokens[4:], log_probs[4:], version, output.finish, output.matched)
        return [GenerateChunk(tokens[:4], log_probs[:4], version), last]


class NoParts(Streams):
    def split(self, output: GenerateOutput) -> list[GenerateChunk]:
        return []


class EndsTwice(Streams):
    def split(self, output: GenerateOutput) -> list[GenerateChunk]:
        first, last = super().split(output)
        return [replace(first, finish=last.finish), last]


class LogProbsAtTheEnd(Streams):
    def split(self, output: GenerateOutput) -> list[GenerateChunk]:
        first, last = super().split(output)
        return [replace(first, log_probs=[]), replace(last, log_probs=output.log_probs)]


class LosesATokenBetween(Streams):
    def split(self, output: GenerateOutput) -> list[GenerateChunk]:
        first, last = super().split(output)
        return [first, replace(last, tokens=last.tokens[1:], log_probs=last.log_probs[1:])]


class StreamsOn(Streams):
    async def stream(self, request: GenerateRequest) -> AsyncGenerator[GenerateChunk, None]:
        try:
            for chunk in self.split(await self.generate(request)):
                yield chunk
        except (GeneratorExit, asyncio.CancelledError):
            self.task = asyncio.create_task(asyncio.sleep(30))
            raise


class Rich(Toy):
    """The same engine with all that may be wanted: two experts a token."""

    GIVES = frozenset(Extra)

    async def draw(self, request: GenerateRequest) -> GenerateOutput:
        output = await super().draw(request)
        return replace(output, extras=self.told(request, output)) if request.want else output

    def told(self, request: GenerateRequest, output: GenerateOutput) -> EngineExtras:
        prompt, count, want = len(request.prompt), len(output.tokens), request.want
        kept = {Extra.TOP_P_TOKENS: array("i", [each for token in output.tokens for each in (token, 5)])}
        offsets = {Extra.TOP_P_TOKENS: array("i", range(0, 2 * count + 1, 2))}
        return EngineExtras(
            routed_experts=array("i", range(2 * (prompt + count - 1))) if Extra.ROUTED_EXPERTS in want else None,
            top_p_token_ids=kept.get(Extra.TOP_P_TOKENS) if Extra.TOP_P_TOKENS in want else None,
            top_p_token_offsets=offsets.get(Extra.TOP_P_TOKENS) if Extra.TOP_P_TOKENS in want else None,
            prompt_log_probs=self.scored(prompt - 1) if Extra.PROMPT_LOG_PROBS in want else None,
        )

    def scored(self, count: int) -> list[float]:
        return [-1.0 - len(self.weights)] * count


class ScoresOnlyWhatItMakes(Rich):
    def told(self, request: GenerateRequest, output: GenerateOutput) -> EngineExtras:
        told = super().told(request, output)
        return told if len(output.tokens) else replace(told, prompt_log_probs=None)


class ScoresByOtherWeights(Rich):
    def scored(self, count: int) -> list[float]:
        return [-1.5] * count


class GivesLess(Rich):
    def told(self, request: GenerateRequest, output: GenerateOutput) -> EngineExtras:
        return replace(super().told(request, output), routed_experts=None)


class KeptOfANeighbour(Rich):
    def told(self, request: GenerateRequest, output: GenerateOutput) -> EngineExtras:
        return super().told(request, replace(output, tokens=[*output.tokens[1:], output.tokens[0] + 1]))


class IgnoresWants(Toy):
    def refuse(self, request: GenerateRequest) -> None:
        super().refuse(replace(request, want=frozenset()))


class RefusesWhatItGives(Rich):
    def refuse(self, request: GenerateRequest) -> None:
        if Extra.ROUTED_EXPERTS in request.want:
            raise ModelError("not routed_experts now")
        super().refuse(request)


class InPlace(Toy):
    """Switches weights amid its answers, and says so."""

    async def draw(self, request: GenerateRequest) -> GenerateOutput:
        before = self.version
        output = await super().draw(request)
        if request.sampling.max_new_tokens == Mine.busy_tokens and output.finish is FinishReason.LENGTH:
            await self.switched(before)  # publishing may take longer than the toy's tokens
        if self.version == before or len(output.tokens) < 2:
            return output
        return self.spanned(replace(output, weight_version=before), len(output.tokens), before, self.version)

    async def switched(self, before: int) -> None:
        """Wait for other weights, which most checks never bring."""
        with suppress(TimeoutError):
            async with asyncio.timeout(0.5):
                while self.version == before:  # noqa: ASYNC110  # nothing tells when
                    await asyncio.sleep(0.001)

    def spanned(self, output: GenerateOutput, count: int, before: int, after: int) -> GenerateOutput:
        return replace(output, extras=EngineExtras(versions=((1, before), (count - 1, after))))


class LosesASpan(InPlace):
    def spanned(self, output: GenerateOutput, count: int, before: int, after: int) -> GenerateOutput:
        return replace(output, extras=EngineExtras(versions=((1, before),)))


class NamesTheNewest(InPlace):
    def spanned(self, output: GenerateOutput, count: int, before: int, after: int) -> GenerateOutput:
        spanned = super().spanned(output, count, before, after)
        return replace(spanned, weight_version=after)


class RefusesPicturesWithoutAWord(Toy):
    def refuse(self, request: GenerateRequest) -> None:
        if request.media:
            raise ModelError("not supported")
        super().refuse(request)


class NamesTheNewVersionBeforeItIsRead(Toy):
    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        self.version = version
        await super().load_weights(channel, version)


class ForgetsTheOldOnes(Toy):
    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        self.weights = "garbage"
        await super().load_weights(channel, version)


class LoadsWithoutAWord(Toy):
    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        if channel.path.exists():
            await super().load_weights(channel, version)


class AbortsOnlyWhatHasArrived(Toy):
    async def draw(self, request: GenerateRequest) -> GenerateOutput:
        await asyncio.sleep(0.003)
        return await super().draw(request)


MUTANTS: dict[str, tuple[EngineSpec, ...]] = {
    "ENG-001": (spec_of(PlainClose), spec_of(starts_in_the_factory)),
    "ENG-002": (spec_of(Toy, ()), spec_of(Toy, (7,))),  # type: ignore[arg-type]
    "ENG-003": (changing(one_log_prob_short), changing(text_for_finish)),
    "ENG-004": (changing(log_of_zero), changing(probabilities_when_greedy)),
    "ENG-005": (changing(stop_token_on_top), changing(length_too_early)),
    "ENG-006": (sampling(stop_token_ids=frozenset()), changing(stop_token_left_out)),
    "ENG-007": (spec_of(CountsCalls),),
    "ENG-008": (spec_of(NoSeed),),
    "ENG-009": (sampling(temperature=1.0),),
    "ENG-010": (spec_of(SharesState),),
    "ENG-011": (spec_of(NameOnly), spec_of(WeightsOnly)),
    "ENG-012": (spec_of(DropsWhatRuns),),
    "ENG-013": (spec_of(AbortsNothing),),
    "ENG-014": (spec_of(GoesOn), spec_of(SwallowsCancellation)),
    "ENG-015": tuple(map(spec_of, (KeepsSockets, KeepsAProcess, KeepsATask))),
    "ENG-016": (spec_of(WaitsForGood),),
    "ENG-017": (spec_of(TooLongWithoutAWord), spec_of(FailsAllForOne)),
    "ENG-018": (sampling(logit_bias={}), changing(log_probs_of_the_bias)),
    "ENG-019": (sampling(min_new_tokens=0),),
    "ENG-020": (spec_of(NoCounts),),
    "ENG-021": (spec_of(NoMinP),),
    "ENG-022": tuple(map(spec_of, (NoParts, EndsTwice, LogProbsAtTheEnd, LosesATokenBetween))),
    "ENG-023": (spec_of(StreamsOn),),
    "ENG-024": tuple(map(spec_of, (GivesLess, KeptOfANeighbour, IgnoresWants, RefusesWhatItGives))),
    "ENG-025": tuple(map(spec_of, (LosesASpan, NamesTheNewest))),
    "ENG-026": tuple(map(spec_of, (RefusesPicturesWithoutAWord,))),
    "ENG-027": tuple(map(spec_of, (NamesTheNewVersionBeforeItIsRead, ForgetsTheOldOnes, LoadsWithoutAWord))),
    "ENG-028": (spec_of(AbortsOnlyWhatHasArrived),),
    "ENG-029": tuple(map(spec_of, (ScoresOnlyWhatItMakes, ScoresByOtherWeights))),
}


@pytest.fixture(autouse=True)
def _tidy() -> Iterator[None]:
    yield
    while LEFT_OPEN:
        LEFT_OPEN.pop().close()
    while LEFT_RUNNING:
        with LEFT_RUNNING.pop() as process:
            process.kill()


@table("engine", [Toy, Streams, Rich, InPlace])
def test_an_engine_that_keeps_every_check_fails_none(engine: type[Toy]) -> None:
    assert failing(contract_of(spec_of(engine))) == set()


def test_every_check_has_a_mutant() -> None:
    assert list(EngineContract.checks()) == list(MUTANTS)


each_check = pytest.mark.parametrize("identity", MUTANTS)


@each_check
def test_each_mutant_fails_its_check(identity: str) -> None:
    for mutant in MUTANTS[identity]:
        (found,) = contract_of(mutant).report(identity)
        assert found.status is CheckStatus.FAILED, (mutant.factory, found.detail)


@pytest.mark.long
@each_check
def test_each_mutant_fails_no_other(identity: str) -> None:
    assert [failing(contract_of(mutant)) for mutant in MUTANTS[identity]] == [{identity}] * len(MUTANTS[identity])


def test_an_engine_that_varies_is_not_compared_with_itself() -> None:
    class VaryingStreams(Streams, CountsCalls):
        pass

    class Varying(Mine):
        choice = spec_of(VaryingStreams)
        deterministic = False
        too_long = None

    results = {result.identity: result for result in Varying.report()}
    assert not any(result.status is CheckStatus.FAILED for result in results.values())
    assert results["ENG-007"].detail == "the contract sets deterministic = False"
    assert results["ENG-017"].detail == "the contract sets too_long = None: prompts have no limit"
    assert results["ENG-022"].status is CheckStatus.PASSED


def counting(engine: type[Toy]) -> type[EngineContract]:
    """The contract of an author who can tell what the server is at."""

    class Told(Mine):
        choice = spec_of(engine)
        too_long = None

        def running(self, engine: Engine) -> int | None:
            assert isinstance(engine, Toy)
            return engine.under_way

    return Told


def starts_of(engine: type[Toy], *, fresh: bool) -> tuple[set[str], int]:
    """Which checks fail, and how often an engine was started."""
    started: list[Toy] = []

    class Counted(engine):  # type: ignore[misc, valid-type]
        async def start(self) -> None:
            started.append(self)
            await super().start()

    class Subject(Mine):
        choice = spec_of(Counted)

    Subject.fresh = fresh
    found = failing(Subject)
    assert not any(each.sockets for each in started), "all are closed"
    return found, len(started)


def test_one_engine_serves_all_checks_but_those_that_close_it() -> None:
    assert starts_of(Toy, fresh=False) == (set(), 4)
    found, starts = starts_of(Toy, fresh=True)
    assert not found
    assert starts > 20


def test_an_engine_that_a_check_broke_is_not_shared_any_more() -> None:
    class DiesOfALongPrompt(Toy):
        async def generate(self, request: GenerateRequest) -> GenerateOutput:
            if len(request.prompt) > ROOM:
                await self.close()
            return await super().generate(request)

    found, starts = starts_of(DiesOfALongPrompt, fresh=False)
    assert found == {"ENG-017"}
    assert starts == 5


def test_checks_wait_until_a_request_runs_where_the_author_can_tell() -> None:
    class SlowToBegin(Toy):
        async def generate(self, request: GenerateRequest) -> GenerateOutput:
            if request.sampling.max_new_tokens == Mine.busy_tokens:
                await asyncio.sleep(0.1)
            return await super().generate(request)

    told = counting(SlowToBegin)
    assert failing(told) == {"ENG-028"}


def test_what_a_server_goes_on_with_is_seen_where_the_author_can_tell() -> None:
    class Forgets(Toy):
        async def generate(self, request: GenerateRequest) -> GenerateOutput:
            self.refuse(request)
            self.under_way += 1
            output = await self.draw(request)
            self.under_way -= 1
            return output

    results = {result.identity: result for result in counting(Forgets).report()}
    assert {each for each, result in results.items() if result.status is CheckStatus.FAILED} == {"ENG-014"}
    assert results["ENG-022"].detail == "it has no stream(), which is optional"


def test_without_an_author_only_the_spec_is_judged() -> None:
    class Unattended(EngineContract):
        choice = spec_of(Toy)
        automatic = True

    results = {result.identity: result for result in Unattended.report()}
    assert results["ENG-002"].status is CheckStatus.PASSED
    assert {result.status for result in results.values()} == {CheckStatus.PASSED, CheckStatus.SKIPPED}
    assert "needs the author's `make_setup`" in results["ENG-001"].detail
