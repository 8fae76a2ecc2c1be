"""Notes: what a draw writes to `group.metadata["replay"]`, and the columns that a loss reads of it.

Example:

    write_note(group, uses=2, weight=0.8)        # metadata["replay"] = {"uses": 2, "weight": 0.8}
    [batch_transform]
    use = ["replay"]                             # a loss reads columns_S["replay_count"] and ["replay_weight"]
"""

from collections.abc import Mapping, Sequence
from typing import cast

from slime_core import Group, Sample, Settings
from slime_core.roles import Grain, Setup, ShapeContext

NOTE = "replay"
"""Key in a group's metadata."""
COLUMNS = {"replay_count": Grain.SAMPLE, "replay_weight": Grain.SAMPLE}
"""What `ReplayColumns` makes: how often the group is trained on, this time included, and its importance weight."""


def write_note(group: Group, uses: int, weight: float) -> None:
    """Note a use: the how-manieth, and its importance weight."""
    group.metadata[NOTE] = {"uses": uses, "weight": weight}


class ReplayColumns:
    """Implements `slime_core.roles.BatchTransform`: a sample's numbers are its group's."""

    def __init__(self, settings: Settings, setup: Setup) -> None:
        """Needs nothing."""

    def __call__(self, sample: Sample, group: Group, ctx: ShapeContext) -> Mapping[str, float | Sequence[float]]:
        """The use's number and weight; 1 and 1.0 of a group that another buffer handed out."""
        note = cast(Mapping[str, float], group.metadata.get(NOTE, {"uses": 1, "weight": 1.0}))
        return {"replay_count": float(note["uses"]), "replay_weight": float(note["weight"])}
