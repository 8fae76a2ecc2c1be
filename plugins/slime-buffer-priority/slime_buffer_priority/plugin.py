"""Entry point of the plugin: the buffer `priority` and the batch transform `replay`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from slime_buffer_priority.settings import COUNT, PrioritySettings
from slime_core import Group, Sample, hookimpl
from slime_core.roles import (
    BatchTransformSpec,
    Buffer,
    BufferSetup,
    BufferSpec,
    Grain,
    Replay,
    Settings,
    Setup,
    ShapeContext,
)

SLIME_API = "1"


class ReplayColumns:
    """The batch transform `replay`: the column `replay_count`, 1 for a group that is trained on for the first time."""

    def __init__(self, settings: Settings, setup: Setup) -> None:
        pass

    def __call__(self, sample: Sample, group: Group, ctx: ShapeContext) -> Mapping[str, float | Sequence[float]]:
        return {COUNT: float(cast(int, group.metadata.get(COUNT, 1)))}


def _priority(settings: PrioritySettings, setup: BufferSetup) -> Buffer:
    from slime_buffer_priority.buffer import PriorityBuffer  # numpy: only where a buffer is built

    return PriorityBuffer(settings, setup)


def _replay(settings: PrioritySettings) -> Replay:
    return Replay(settings.max_uses, settings.replay_ratio, settings.max_staleness)


@hookimpl
def slime_buffers() -> Iterable[BufferSpec]:
    """The buffers of this plugin."""
    yield BufferSpec(
        "priority",
        _priority,
        PrioritySettings,
        "Groups drawn by priority and replayed, with importance weights",
        replay=_replay,
    )


@hookimpl
def slime_batch_transforms() -> Iterable[BatchTransformSpec]:
    """The batch transforms of this plugin."""
    yield BatchTransformSpec(
        "replay",
        ReplayColumns,
        summary="A column replay_count: the uses of the group, this one included",
        columns={COUNT: Grain.SAMPLE},
    )
