"""The entry point: all choices of slime-train. Listing them imports no torch."""

from collections.abc import Iterable
from pkgutil import resolve_name
from typing import cast

from slime_core.hookspecs import hookimpl
from slime_core.roles import (
    AdvantageSpec,
    CorrectionSpec,
    GroupFilterSpec,
    Isolation,
    LossSpec,
    RewardShaper,
    RewardShaperSpec,
    RewardSpec,
    SampleFilterSpec,
    Settings,
    Setup,
    Transport,
    TransportSetup,
    TransportSpec,
)
from slime_train.estimators import estimators
from slime_train.settings import DiskSettings, JudgeSettings, OverlongSettings
from slime_train.specs import corrections, losses

SLIME_API = "1"
JUDGE_S = 300.0
"""Timeout of a judge in seconds, including its wait for other requests."""


@hookimpl
def slime_advantages() -> Iterable[AdvantageSpec]:
    """From rewards to advantages."""
    return estimators()


@hookimpl
def slime_losses() -> Iterable[LossSpec]:
    """Policy gradients, and plain likelihood."""
    return losses()


@hookimpl
def slime_corrections() -> Iterable[CorrectionSpec]:
    """Importance sampling of several kinds."""
    return corrections()


@hookimpl
def slime_rewards() -> Iterable[RewardSpec]:
    """A served model as judge."""
    yield RewardSpec(
        "served_judge",
        lambda settings, setup: resolve_name("slime_train.judge:Judge")(settings, setup),
        JudgeSettings,
        "Score from a model that the run serves next to the policy",
        isolation=Isolation.LOOP,
        timeout_s=JUDGE_S,
        models=lambda settings: (cast(JudgeSettings, settings).model,),
    )


@hookimpl
def slime_group_filters() -> Iterable[GroupFilterSpec]:
    """Dynamic sampling."""
    yield GroupFilterSpec(
        "nonzero_std",
        lambda settings, setup: resolve_name("slime_train.filters:nonzero_std"),
        summary="Keep groups whose rewards differ",
    )
    yield GroupFilterSpec(
        "nonzero_std_with_fallback",
        lambda settings, setup: resolve_name("slime_train.filters:nonzero_std_with_fallback"),
        summary="The same, unless the rollout comes up short",
    )


@hookimpl
def slime_sample_filters() -> Iterable[SampleFilterSpec]:
    """Removes truncated responses."""
    yield SampleFilterSpec(
        "truncated",
        lambda settings, setup: resolve_name("slime_train.filters:truncated"),
        summary="Leave responses that were cut off out of training (DAPO)",
    )


@hookimpl
def slime_reward_shapers() -> Iterable[RewardShaperSpec]:
    """Penalties independent of the reward."""
    yield RewardShaperSpec(
        "overlong", _overlong, OverlongSettings, "A penalty that grows over the last tokens of the budget (DAPO)"
    )


def _overlong(settings: OverlongSettings, setup: Setup) -> RewardShaper:
    from slime_train.overlong import Overlong

    return Overlong(settings)


@hookimpl
def slime_transports() -> Iterable[TransportSpec]:
    """Files, in memory and on disk."""
    yield TransportSpec(
        "shared-buffer", _shared_buffer, summary="Two files that ranks and engines map; one machine", one_machine=True
    )
    yield TransportSpec("disk", _disk, DiskSettings, "A safetensors file a version, in a folder that all machines see")


def _shared_buffer(settings: Settings, setup: TransportSetup) -> Transport:
    from slime_train.shared_buffer import SharedBuffer

    return SharedBuffer(settings, setup)


def _disk(settings: DiskSettings, setup: TransportSetup) -> Transport:
    from slime_train.disk import Disk

    return Disk(settings, setup)
