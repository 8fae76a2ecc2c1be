"""Every part of a run that slime-core alone does not bring, in pure Python and in the driver's process.

The policy has one logit for each of five tokens. The trainer raises the likelihood of tokens in samples whose reward
is above the mean of their group.
"""

from collections.abc import Iterable

from slime_core import Score, hookimpl
from slime_core.roles import (
    AdvantageSpec,
    EngineSetup,
    EngineSpec,
    LauncherSetup,
    LauncherSpec,
    LossSpec,
    RankSetup,
    RewardContext,
    RewardSpec,
    Settings,
    Setup,
    TrainerRank,
    TrainerSpec,
    TransportSpec,
)
from slime_core.sample import Sample
from slime_toy.policy import Five, InProcess, ToyTransport, centered

SLIME_API = "1"


@hookimpl
def slime_engines() -> Iterable[EngineSpec]:
    yield EngineSpec("five", _engine, transports=("toy",))


def _engine(settings: Settings, setup: EngineSetup) -> Five:
    return Five(setup.eos_token_ids)


@hookimpl
def slime_trainers() -> Iterable[TrainerSpec]:
    yield TrainerSpec("five", _rank, transports=("toy",))


def _rank(rank: int, world_size: int, setup: RankSetup) -> TrainerRank:
    raise NotImplementedError("the launcher in_process makes the rank")


@hookimpl
def slime_launchers() -> Iterable[LauncherSpec]:
    yield LauncherSpec("in_process", _launcher)


def _launcher(settings: Settings, setup: LauncherSetup) -> InProcess:
    return InProcess()


@hookimpl
def slime_transports() -> Iterable[TransportSpec]:
    yield TransportSpec("toy", ToyTransport, one_machine=True, brings_receiver=False)


@hookimpl
def slime_advantages() -> Iterable[AdvantageSpec]:
    yield AdvantageSpec("centered", _centered, compares_samples=lambda settings: True)


def _centered(settings: Settings, setup: Setup) -> object:
    return centered


@hookimpl
def slime_losses() -> Iterable[LossSpec]:
    yield LossSpec("likelihood", _likelihood)
    yield LossSpec("given", _likelihood, uses_advantages=False)


def _likelihood(settings: Settings, setup: Setup) -> object:
    raise NotImplementedError("the trainer knows its gradient")


@hookimpl
def slime_rewards() -> Iterable[RewardSpec]:
    yield RewardSpec.from_function("share_of_a", share_of_a)


async def share_of_a(sample: Sample, ctx: RewardContext) -> Score:
    """The share of the letter a in the response."""
    text = sample.response
    return Score(text.count("a") / max(1, len(text)))
