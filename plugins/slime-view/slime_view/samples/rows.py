"""SampleRow: one stored sample as people and programs read it: texts, reward, reasons, no tokens.

for row in shard.rows(): print(row.reward, row.response)
"""

from collections.abc import Mapping
from dataclasses import dataclass

from slime_core.sample import Json, Message

SCHEMA_VERSION = 1
"""Version of the format of shards, and of rows as JSON."""


@dataclass(frozen=True, slots=True)
class SampleRow:
    """One sample of a rollout or of an evaluation."""

    rollout_id: int
    """Number of the rollout; for an evaluation, rollouts done before it."""
    source: str
    """Name of the data set."""
    group: str | None
    """The group's identity; None in an evaluation."""
    index: int
    """Number of the sample within its group, or within its data set in an evaluation, from 0."""
    prompt: str | list[Message]
    """What the model was asked."""
    response: str
    """What it wrote."""
    response_length: int
    """Tokens of the response."""
    label: Json
    """The gold answer."""
    reward: float | Mapping[str, float] | None
    """The reward; None where scoring failed."""
    status: str
    """The value of the sample's `Status`."""
    drop_reason: str | None
    """Why its group was dropped; None when it was kept."""
    left_out: bool
    """Whether it failed, and its group went on without it."""
    failure_reason: str | None
    """Why it failed, if it did."""
    remove_sample: bool
    """Whether it counts in the metrics and the normalisation alone."""
    weight_versions: list[str]
    """Weight version of each engine call."""
    metadata: Mapping[str, Json]
    """What row, generator and rewards noted."""

    def to_dict(self) -> dict[str, Json]:
        """The row as plain JSON."""
        prompt: Json = self.prompt if isinstance(self.prompt, str) else [dict(message) for message in self.prompt]
        reward: Json = dict(self.reward) if isinstance(self.reward, Mapping) else self.reward
        return {
            "schema_version": SCHEMA_VERSION,
            "rollout_id": self.rollout_id,
            "source": self.source,
            "group": self.group,
            "index": self.index,
            "prompt": prompt,
            "response": self.response,
            "response_length": self.response_length,
            "label": self.label,
            "reward": reward,
            "status": self.status,
            "drop_reason": self.drop_reason,
            "left_out": self.left_out,
            "failure_reason": self.failure_reason,
            "remove_sample": self.remove_sample,
            "weight_versions": list(self.weight_versions),
            "metadata": dict(self.metadata),
        }
