"""Functions for viewers and tools that read a run folder beyond its metrics and samples, during and after the run.

Example:

    [each.rollout_id for each in read_resumes(run)]             # resumes of the run
    [str(each) for each in read_alarms(run)]                    # its alarms
    GroupHistory.of(run, "train.jsonl:e0:r17:d17").moves                # state changes of a group
    Comparison.of(run, other).metrics                           # differences of two runs
"""

from collections.abc import Mapping
from pathlib import Path

from slime_core.run import GroupState
from slime_core.sample import Json
from slime_core.telemetry import MetricsRow
from slime_view.alarms import Alarm, read_alarms
from slime_view.comparison import Comparison, Prompt
from slime_view.figures import ReportPaths, write_report
from slime_view.group_history import GroupHistory, Move
from slime_view.ledger_view import LedgerView, Resume, read_resumes

__all__ = [
    "Alarm",
    "Comparison",
    "GroupHistory",
    "GroupState",
    "MetricsRow",
    "Move",
    "Prompt",
    "ReportPaths",
    "Resume",
    "group_history",
    "read_alarms",
    "read_resumes",
    "write_report",
]


def group_history(run: Path, group: str) -> list[Mapping[str, Json]]:
    """The ledger's lines about a group, in order; empty if it has no such group.

    Raises:
        RunFolderError: the run has no ledger, or it is damaged.
    """
    return LedgerView.of(run).history(group)
