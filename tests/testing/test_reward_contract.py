import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine

import pytest

from slime_core import RewardContext, RewardSpec, Sample, Score, Settings, Setup, Unscored, Verdict
from slime_core.testing import CheckStatus, RewardContract, make_sample

Function = Callable[[Sample, RewardContext], Coroutine[object, object, Verdict]]


async def exact(sample: Sample, ctx: RewardContext) -> Verdict:
    await asyncio.sleep(0)
    if sample.label is None:
        return Unscored("no label")
    return Score(float(sample.response == sample.label))


def contract_of(spec: RewardSpec) -> type[RewardContract]:
    class Subject(RewardContract):
        choice = spec
        good = make_sample(response="4", label="4")
        bad = make_sample(response="5", label="4")

    return Subject


def failing(contract: type[RewardContract]) -> set[str]:
    return {result.identity for result in contract.report() if result.status is CheckStatus.FAILED}


def spec_of(function: Function) -> RewardSpec:
    return RewardSpec.from_function("subject", function)


class NotAsync:
    def __call__(self, sample: Sample, ctx: RewardContext) -> Coroutine[object, object, Verdict]:
        return exact(sample, ctx)


async def plain_float(sample: Sample, ctx: RewardContext) -> Verdict:
    if sample.response == sample.label == "4" and ctx.rollout_id == 0:
        return 1.0  # type: ignore[return-value]
    return await exact(sample, ctx)


async def marks_the_sample(sample: Sample, ctx: RewardContext) -> Verdict:
    sample.metadata["seen"] = True
    return await exact(sample, ctx)


async def indifferent(sample: Sample, ctx: RewardContext) -> Verdict:
    return Score(0.5) if isinstance(await exact(sample, ctx), Score) else Unscored("no label")


def forgetful() -> Function:
    calls = itertools.count()

    async def reward(sample: Sample, ctx: RewardContext) -> Verdict:
        verdict = await exact(sample, ctx)
        return Score(verdict.value, {"call": next(calls)}) if isinstance(verdict, Score) else verdict

    return reward


class SharesState:
    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        self.sample = sample
        await asyncio.sleep(0)
        return await exact(self.sample, ctx)


async def blocks(sample: Sample, ctx: RewardContext) -> Verdict:
    if sample.response == "5":
        time.sleep(0.3)  # noqa: ASYNC251  # what the check is about
    return await exact(sample, ctx)


async def sets_an_alarm(sample: Sample, ctx: RewardContext) -> Verdict:
    import signal

    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    return await exact(sample, ctx)


async def reads_numbers(sample: Sample, ctx: RewardContext) -> Verdict:
    int(sample.response)
    return await exact(sample, ctx)


async def cannot_be_cancelled(sample: Sample, ctx: RewardContext) -> Verdict:
    try:
        await asyncio.sleep(0.005)
    except asyncio.CancelledError:
        await asyncio.sleep(0)
    return await exact(sample, ctx)


async def punishes_missing_labels(sample: Sample, ctx: RewardContext) -> Verdict:
    return Score(float(sample.response == sample.label))


def built_by(kind: Callable[[], object]) -> RewardSpec:
    def factory(settings: Settings, setup: Setup) -> object:
        return kind()

    return RewardSpec("subject", factory)  # type: ignore[arg-type]  # some of them are no rewards


MUTANTS: dict[str, tuple[RewardSpec, set[str]]] = {
    "REW-001": (built_by(NotAsync), set()),
    "REW-002": (spec_of(plain_float), {"REW-004"}),
    "REW-003": (spec_of(marks_the_sample), set()),
    "REW-004": (spec_of(indifferent), set()),
    "REW-005": (spec_of(forgetful()), {"REW-006", "REW-008"}),
    "REW-006": (built_by(SharesState), set()),
    "REW-007": (spec_of(blocks), set()),
    "REW-008": (spec_of(sets_an_alarm), set()),
    "REW-009": (spec_of(reads_numbers), set()),
    "REW-010": (spec_of(cannot_be_cancelled), set()),
    "REW-011": (spec_of(punishes_missing_labels), set()),
}


class TestExact(RewardContract):
    choice = spec_of(exact)
    good = make_sample(response="4", label="4")
    bad = make_sample(response="5", label="4")


def test_every_check_has_a_mutant() -> None:
    assert list(RewardContract.checks()) == list(MUTANTS)


@pytest.mark.parametrize("identity", MUTANTS)
def test_a_mutant_fails_its_check(identity: str) -> None:
    spec, others = MUTANTS[identity]
    assert failing(contract_of(spec)) == {identity} | others


def test_a_reward_that_draws_is_not_compared_with_itself() -> None:
    class Drawing(RewardContract):
        choice = spec_of(forgetful())
        good = make_sample(response="4", label="4")
        bad = make_sample(response="5", label="4")
        deterministic = False

    results = {result.identity: result for result in Drawing.report()}
    assert failing(Drawing) == set()
    assert results["REW-005"].detail == "the contract says deterministic = False"


def test_a_reward_of_form_needs_no_label() -> None:
    async def shortness(sample: Sample, ctx: RewardContext) -> Verdict:
        return Score(-len(sample.response))

    class Form(RewardContract):
        choice = spec_of(shortness)
        good = make_sample(response="4")
        bad = make_sample(response="four")
        needs_label = False

    assert failing(Form) == set()


def test_a_reward_is_called_with_its_own_time_limit() -> None:
    async def sleeps(sample: Sample, ctx: RewardContext) -> Verdict:
        await asyncio.sleep(60 if sample.response == "" else 0)
        return await exact(sample, ctx)

    def factory(settings: Settings, setup: Setup) -> Function:
        return sleeps

    spec = RewardSpec("sleeps", factory, timeout_s=0.05)  # type: ignore[arg-type]
    (found,) = (result for result in contract_of(spec).report() if result.status is CheckStatus.FAILED)
    assert found.detail.startswith("response 'nothing': no answer in 0.05 s")


def test_a_reward_may_wrap_another_one() -> None:
    def factory(settings: Settings, setup: Setup) -> Function:
        math = setup.make("reward", "math")

        async def halved(sample: Sample, ctx: RewardContext) -> Verdict:
            verdict = await math(sample, ctx)  # type: ignore[operator]
            return Score(verdict.value / 2) if isinstance(verdict, Score) else verdict

        return halved

    class Wrapping(RewardContract):
        choice = RewardSpec("halved", factory)  # type: ignore[arg-type]
        good = make_sample(response=r"\boxed{4}", label="4")
        bad = make_sample(response=r"\boxed{5}", label="4")

    assert failing(Wrapping) == set()
