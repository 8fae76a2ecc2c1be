"""When to generate: what has no effect is refused. `test_any_stop_resumes.py` runs all policies."""

from typing import Any

from tests.conftest import Project, Slime
from tests.tables import table

PRIORITY: dict[str, Any] = {"buffer": {"use": "priority", "priority": {"max_staleness": 0}}}


@table(
    "changes, expected",
    [
        ({"max_staleness": 2}, "max_staleness has no effect here: set rollout_policy"),
        ({"partial_rollout": True}, "give an over_sampling_batch_size above rollout_batch_size = 4"),
        ({"partial_rollout": True, "rollout_policy": "async"}, "the weights wait for a whole rollout"),
        ({"mask_offpolicy_in_partial_rollout": True}, "set partial_rollout = true"),
        (
            {"partial_rollout": True, "over_sampling_batch_size": 9},
            "over_sampling_batch_size = 9 has no effect here: with max_staleness = 1 at most 8 groups",
        ),
        ({"rollout_policy": "continous"}, "continuous"),
        (
            PRIORITY | {"rollout_policy": "async"},
            "groups more than 0 weight versions old, and with rollout_po",
        ),
        (
            PRIORITY | {"rollout_policy": "continuous", "max_staleness": 2},
            "allow 2 in [buffer.priority], or change",
        ),
        (
            PRIORITY | {"update_weights_interval": 3},
            "allow 2 in [buffer.priority], or change up",
        ),
    ],
)
def test_what_would_have_no_effect_is_refused(
    project: Project, slime: Slime, changes: dict[str, Any], expected: str
) -> None:
    project.write_run(**changes)
    ran = slime("train", "run.toml")
    assert ran.code != 0
    assert expected in ran.err
