"""Telemetry: the files and messages that a run produces about itself: metrics, samples, the display, the report.

Formats are documented in docs/formats.md. Nothing here imports torch; pyarrow, matplotlib and TensorBoard are
imported on use.
"""

from slime_core.telemetry.display import Display, make_display
from slime_core.telemetry.metrics import MetricsLog, MetricsRow, run_folder_errors, strip_timing
from slime_core.telemetry.recording import GeneratedGroups

__all__ = [
    "Display",
    "GeneratedGroups",
    "MetricsLog",
    "MetricsRow",
    "make_display",
    "run_folder_errors",
    "strip_timing",
]
