"""The entry point: all choices of slime-train. Listing them imports no torch."""

from collections.abc import Iterable

from slime_core.hookspecs import hookimpl
from slime_core.roles import (
    AdvantageSpec,
    CorrectionSpec,
    LossSpec,
    RewardShaper,
    RewardShaperSpec,
    Settings,
    Setup,
    Transport,
    TransportSetup,
    TransportSpec,
)
from slime_train.estimators import estimators
from slime_train.settings import DiskSettings, OverlongSettings
from slime_train.specs import corrections, losses

SLIME_API = "1"


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
