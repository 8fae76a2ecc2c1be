"""What failed checks say: the message leads to the fault, and to no other one."""

import asyncio
import random

from slime_core import Sample, Score, Unscored, Verdict
from slime_core.roles import RewardContext, RewardSpec
from slime_testing import CheckStatus, Contract, RewardContract, make_sample
from tests.plugin_contracts.mutants import data_source as sources
from tests.tables import table


def detail(contract: type[Contract], identity: str, status: CheckStatus = CheckStatus.FAILED) -> str:
    (result,) = contract.report(identity)
    assert result.status is status
    return result.detail


@table(
    "contract, said",
    zip(
        sources.MUTANTS["SRC-005"],
        [
            "state_dict lacks the groups returned by `add`",
            "save the position in the data and the number of the epoch",
            "state_dict is not plain JSON, at state_dict()['seen']['rows'][0]: Object of type set",
        ],
        strict=True,
    ),
)
def test_what_a_source_did_not_save_is_named(contract: type[Contract], said: str) -> None:
    assert said in detail(contract, "SRC-005")


def test_an_order_that_was_not_saved_is_named() -> None:
    class NoOrder(sources.Rows):
        def load_state_dict(self, state: object) -> None:
            super().load_state_dict(state)  # type: ignore[arg-type]
            self.seed = 7

        def order(self, epoch: int) -> list[int]:
            return random.Random(f"{getattr(self, 'seed', 0)} {epoch}").sample(range(len(self)), len(self))

    assert "save the order, or the seed that determines it" in detail(sources.contract_of(NoOrder), "SRC-005")


LOOPS: list[asyncio.AbstractEventLoop] = []


async def with_a_client_of_the_module(sample: Sample, ctx: RewardContext) -> Verdict:
    LOOPS[:] = LOOPS or [asyncio.get_running_loop()]
    if LOOPS[0] is not asyncio.get_running_loop():
        raise RuntimeError("Event loop is closed")
    return Score(float(sample.response == "4"))


def test_a_client_that_outlives_its_event_loop_is_told_so() -> None:
    class Subject(RewardContract):
        choice = RewardSpec.from_function("subject", with_a_client_of_the_module)
        good = make_sample("4")
        bad = make_sample("5")

    said = "belongs to the event loop that created it. Store it in the object that the factory returns"
    assert said in detail(Subject, "REW-002")


async def gives_up(sample: Sample, ctx: RewardContext) -> Verdict:
    return Unscored("no judge")


def test_a_reward_that_scores_nothing_is_told_without_an_author_too() -> None:
    class Subject(RewardContract):
        choice = RewardSpec.from_function("subject", gives_up)
        automatic = True

    assert "the kit's samples got no score, but Unscored" in detail(Subject, "REW-004", CheckStatus.SKIPPED)
