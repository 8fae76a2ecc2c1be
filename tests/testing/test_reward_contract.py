import asyncio
import itertools
import signal

from slime_core import Sample, Score, Unscored, Verdict
from slime_core.roles import RewardContext, RewardSpec, Settings, Setup
from slime_testing import CheckStatus, RewardContract, make_sample

GOOD, BAD = make_sample(response="4", label="4"), make_sample(response="5", label="4")


async def exact(sample: Sample, ctx: RewardContext) -> Verdict:
    return Unscored("no label") if sample.label is None else Score(float(sample.response == sample.label))


def contract_of(spec: RewardSpec, **attributes: object) -> type[RewardContract]:
    return type("Subject", (RewardContract,), {"choice": spec, "good": GOOD, "bad": BAD} | attributes)


def found(contract: type[RewardContract], status: CheckStatus, *identities: str) -> dict[str, str]:
    """What all checks say, or these and what they need, of those that ended so."""
    return {result.identity: result.detail for result in contract.report(*identities) if result.status is status}


def test_a_reward_that_draws_is_not_compared_with_itself() -> None:
    calls = itertools.count()

    async def drawing(sample: Sample, ctx: RewardContext) -> Verdict:
        verdict = await exact(sample, ctx)
        return Score(verdict.value, {"call": next(calls)}) if isinstance(verdict, Score) else verdict

    contract = contract_of(RewardSpec.from_function("drawing", drawing), deterministic=False)
    said = "the contract sets deterministic = False"
    assert found(contract, CheckStatus.SKIPPED, "REW-005", "REW-006") == {"REW-005": said, "REW-006": said}
    assert contract.result("REW-008").status is CheckStatus.PASSED


def test_a_reward_of_form_needs_no_label() -> None:
    async def shortness(sample: Sample, ctx: RewardContext) -> Verdict:
        return Score(-len(sample.response))

    contract = contract_of(RewardSpec.from_function("shortness", shortness), bad=make_sample("four"))
    assert found(contract, CheckStatus.SKIPPED, "REW-011") == {"REW-011": "it does not read the label"}


def test_a_reward_is_called_with_its_own_time_limit() -> None:
    async def sleeps(sample: Sample, ctx: RewardContext) -> Verdict:
        await asyncio.sleep(60 if sample.response == "" else 0)
        return await exact(sample, ctx)

    spec = RewardSpec("sleeps", lambda settings, setup: sleeps, timeout_s=0.05)
    assert found(contract_of(spec), CheckStatus.FAILED, "REW-009") == {
        "REW-009": "response 'nothing': no verdict within 0.05 s"
    }


def test_a_reward_may_wrap_another_one() -> None:
    def factory(settings: Settings, setup: Setup) -> object:
        math = setup.make("reward", "math")

        async def halved(sample: Sample, ctx: RewardContext) -> Verdict:
            verdict = await math(sample, ctx)  # type: ignore[operator]
            return Score(verdict.value / 2) if isinstance(verdict, Score) else verdict

        return halved

    good, bad = (make_sample(response=rf"\boxed{{{number}}}", label="4") for number in (4, 5))
    spec = RewardSpec("halved", factory)  # type: ignore[arg-type]
    assert list(found(contract_of(spec, good=good, bad=bad), CheckStatus.PASSED, "REW-004")) == ["REW-004"]


def test_without_an_author_the_kit_scores_its_own_samples() -> None:
    contract = contract_of(RewardSpec.from_function("exact", exact), good=None, bad=None, automatic=True)
    assert "needs the author's `good`" in found(contract, CheckStatus.SKIPPED, "REW-004")["REW-004"]
    assert contract.result("REW-009").status is CheckStatus.PASSED


def test_without_an_author_a_reward_that_cannot_use_them_is_not_blamed() -> None:
    async def needs_tests(sample: Sample, ctx: RewardContext) -> Verdict:
        return Score(float(str(sample.metadata["tests"]) in sample.response))

    contract = contract_of(RewardSpec.from_function("tests", needs_tests), good=None, bad=None, automatic=True)
    assert "the kit's samples raised KeyError: 'tests'" in found(contract, CheckStatus.SKIPPED, "REW-002")["REW-002"]


def plain_def(sample: Sample, ctx: RewardContext) -> Verdict:
    if sample.label is None:
        return Unscored("no label")
    signal.setitimer(signal.ITIMER_REAL, 60)  # possible on the main thread alone, and in a worker process that is it
    signal.setitimer(signal.ITIMER_REAL, 0)
    return Score(float(sample.response == sample.label))


PLAIN = RewardSpec.from_function("plain", plain_def)


def test_a_plain_def_is_judged_in_its_worker_process() -> None:
    assert found(contract_of(PLAIN), CheckStatus.FAILED, "REW-006", "REW-008", "REW-017") == {}


def test_a_plain_def_that_no_worker_can_find_says_how_to_name_it() -> None:
    def hidden(sample: Sample, ctx: RewardContext) -> Verdict:
        return Score(1.0)

    failed = found(contract_of(RewardSpec.from_function("hidden", hidden)), CheckStatus.FAILED, "REW-001")
    assert "Set `choice` to a name" in failed["REW-001"]
