"""Telemetry: what a run writes and shows about itself. Metrics, transcripts, the display, the report.

Formats are documented in docs/formats.md. Nothing here imports torch or numpy; matplotlib and TensorBoard are
imported on use.
"""

from slime_core.telemetry._errors import run_folder_errors
from slime_core.telemetry.display import Display, PlainDisplay, make_display
from slime_core.telemetry.metrics import MetricsLog, MetricsRow, strip_timing
from slime_core.telemetry.plots import overlay
from slime_core.telemetry.report import ReportPaths, write_report
from slime_core.telemetry.samples import SampleLog, SampleRow
from slime_core.telemetry.tensorboard import TensorBoardTracker, tensorboard_tracker
from slime_core.telemetry.transcripts import Pair, before_and_after, prompt_text

__all__ = [
    "Display",
    "MetricsLog",
    "MetricsRow",
    "Pair",
    "PlainDisplay",
    "ReportPaths",
    "SampleLog",
    "SampleRow",
    "TensorBoardTracker",
    "before_and_after",
    "make_display",
    "overlay",
    "prompt_text",
    "run_folder_errors",
    "strip_timing",
    "tensorboard_tracker",
    "write_report",
]
