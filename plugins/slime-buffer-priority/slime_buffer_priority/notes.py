"""Notes: how often a replayed group is trained on, in its metadata, and the column that a loss reads of it.

Its importance weight needs no note: it is the draw's, and reaches every loss through the weights of its tokens.

Example:

    write_notes([group], np.array([2]))          # group.metadata: {"replay_count": 2}
    [batch_transform]
    use = ["replay"]                             # a loss reads columns_S["replay_count"]
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from slime_core import Group, Sample
from slime_core.roles import Grain, Settings, Setup, ShapeContext

if TYPE_CHECKING:
    from slime_buffer_priority.arrays import Ints

COUNT = "replay_count"
"""How often a group is trained on, this time included: key of its metadata from the second time on, and column."""
COLUMNS = {COUNT: Grain.SAMPLE}
"""What `ReplayColumns` makes."""


def write_notes(groups: Sequence[Group], uses: "Ints") -> None:
    """Note the how-manieth use of each group is to come: [n]; a first one needs no note."""
    again = (uses > 1).nonzero()[0]
    for number, use in zip(again.tolist(), uses[again].tolist(), strict=True):
        groups[number].metadata[COUNT] = use


class ReplayColumns:
    """Implements `slime_core.roles.BatchTransform`: a sample's number is its group's."""

    def __init__(self, settings: Settings, setup: Setup) -> None:
        """Needs nothing."""

    def __call__(self, sample: Sample, group: Group, ctx: ShapeContext) -> Mapping[str, float | Sequence[float]]:
        """The number of the use; 1 for a group that was never handed out before."""
        return {COUNT: float(cast(int, group.metadata.get(COUNT, 1)))}
