"""When to generate, in real runs of the local backend: what is drawn is trained once, and no older than allowed."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from slime_core.run import newest_checkpoint
from slime_core.telemetry import MetricsLog
from slime_view.ledger_view import LedgerView
from tests.conftest import Project, Slime
from tests.tables import table

INTERRUPTED: dict[str, Any] = {
    "rollout_policy": "continuous",
    "partial_rollout": True,
    "mask_offpolicy_in_partial_rollout": True,
}
"""`test_any_stop_resumes.py` has all policies, on an instant engine."""
PRIORITY: dict[str, Any] = {"buffer": {"use": "priority", "priority": {"max_staleness": 0}}}


def states_of(run: Path) -> Counter[str]:
    """Groups by their last state."""
    last = {}
    for line in (run / "ledger.jsonl").read_text().splitlines():
        entry = json.loads(line)
        last[entry["id"]] = entry["state"]
    return Counter(last.values())


def test_a_stopped_run_goes_on_with_what_was_alive_and_trains_it_in_time(project: Project, slime: Slime) -> None:
    (project.root / "stops.py").write_text(
        "from slime_core.errors import StopRun\nfrom slime_core.hookspecs import hookimpl\n\nSLIME_API = '1'\n\n\n"
        "@hookimpl\ndef slime_rollout_start(event):\n    if event.rollout_id == 1:\n        raise StopRun('enough')\n"
    )
    project.write_run(num_rollout=4, save_interval=None, **INTERRUPTED)
    assert slime("train", "run.toml", "--plugin", "./stops.py").code == 0
    checkpoint = newest_checkpoint(project.run / "checkpoints", print)
    assert checkpoint
    state: dict[str, Any] = checkpoint.state().model_dump()
    finished = [*state["scheduler"].get("kept", ()), *(each[2] for each in state["scheduler"].get("ready", ()))]
    alive = [each["id"] for each in (*finished, *state["scheduler"].get("in_flight", ()))]
    live = LedgerView.of(project.run).totals.accounts.live
    assert sorted(alive) == sorted(map(str, live))
    (project.root / "stops.py").write_text("SLIME_API = '1'\n")
    slime.ok("resume", project.run)
    assert states_of(project.run) == {"trained": 4 * 4}, "nothing is generated beyond the last step"
    ages = [row.metrics["rollout/staleness/max"] for row in MetricsLog.read(project.run / "metrics.jsonl")]
    assert (ages[0], max(ages)) == (0, 1)


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
