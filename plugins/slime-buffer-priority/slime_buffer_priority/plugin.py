"""What slime-core finds through the entry point: the buffer `priority`, and the batch transform `replay`."""

from collections.abc import Iterable

from slime_buffer_priority.notes import COLUMNS, ReplayColumns
from slime_buffer_priority.settings import PrioritySettings
from slime_core import hookimpl
from slime_core.roles import BatchTransformSpec, Buffer, BufferSetup, BufferSpec, Replay

SLIME_API = "1"


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
        "Groups drawn by priority or rank and replayed, with importance weights",
        replay=_replay,
    )


@hookimpl
def slime_batch_transforms() -> Iterable[BatchTransformSpec]:
    """The batch transforms of this plugin."""
    yield BatchTransformSpec(
        "replay",
        ReplayColumns,
        summary="A column replay_count: the how-manieth use of its group this is",
        columns=COLUMNS,
    )
