"""What is offered to slime-core: without numpy until a buffer is built, and with what the ledger must know."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from slime_buffer_priority import PrioritySettings
from slime_buffer_priority.plugin import ReplayColumns, slime_batch_transforms, slime_buffers
from slime_core import Group, GroupId
from slime_core.roles import Replay, Settings, Setup, ShapeContext
from slime_testing import make_sample
from tests.tables import table


def test_offering_imports_no_numpy() -> None:
    code = "import sys, slime_buffer_priority.plugin; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_ledger_knows_the_replay_settings() -> None:
    (spec,) = slime_buffers()
    assert spec.replay(PrioritySettings(max_uses=5, replay_ratio=2.5)) == Replay(max_uses=5, ratio=2.5, max_staleness=8)


def test_replay_count_column() -> None:
    (spec,) = slime_batch_transforms()
    transform, context = ReplayColumns(Settings(), Setup(_nothing, 0)), ShapeContext(0, ())
    group = Group(GroupId("kit", 0, 0, 0), [make_sample(reward=1.0)])
    assert transform(group.samples[0], group, context) == {"replay_count": 1.0}
    group.metadata["replay_count"] = 3
    assert transform(group.samples[0], group, context) == {"replay_count": 3.0}
    assert set(spec.columns) == {"replay_count"}


def _nothing(role: str, name: str, **settings: object) -> object:
    raise AssertionError("nothing else is made")


@table(
    "given, says",
    [
        ({"replay_ratio": 9.0}, "replay_ratio = 9 is more than max_uses = 4: raise max_uses"),
        ({"quotas": {"math": 0.7, "code": 0.6}}, "sum to 1.3; they are shares of a draw"),
        ({"reward_range": (1.0, 1.0)}, "the first number must be the smaller one"),
        ({"scores": {"luck": 1.0}}, "'advantage', 'reward', 'difficulty', 'diversity', 'recency' or 'staleness'"),
        ({"scores": {"reward": -1.0}}, "greater than or equal to 0"),
        ({"order": "random"}, "'proportional' or 'fifo'"),
        ({"capacity": 0}, "greater than or equal to 1"),
        ({"epsilon": 0.0}, "greater than 0"),
    ],
)
def test_invalid_settings_are_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says.replace("(", r"\(")):
        PrioritySettings.model_validate(given)
