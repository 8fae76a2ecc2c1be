"""Telemetry: what a run writes and shows about itself. Metrics, transcripts, the display, the report.

Formats are documented in docs/formats.md. Nothing here imports torch or numpy; matplotlib and TensorBoard are
imported on use.
"""

from slime_core.telemetry.display import Display, PlainDisplay, make_display
from slime_core.telemetry.metrics import MetricsLog, MetricsRow, strip_timing
from slime_core.telemetry.plots import overlay
from slime_core.telemetry.report import ReportPaths, write_report
from slime_core.telemetry.samples import SampleLog, SampleRow
from slime_core.telemetry.tensorboard import TensorBoardTracker, tensorboard_tracker

__all__ = [
    "Display",
    "MetricsLog",
    "MetricsRow",
    "PlainDisplay",
    "ReportPaths",
    "SampleLog",
    "SampleRow",
    "TensorBoardTracker",
    "make_display",
    "overlay",
    "strip_timing",
    "tensorboard_tracker",
    "write_report",
]
