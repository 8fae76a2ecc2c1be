"""Telemetry: what a run writes and shows about itself. Metrics, samples, the display, the report.

Formats are documented in docs/formats.md. Nothing here imports torch; pyarrow, matplotlib and TensorBoard are
imported on use.
"""

from slime_core.telemetry._errors import run_folder_errors
from slime_core.telemetry.display import Display
from slime_core.telemetry.metrics import MetricsLog, MetricsRow, strip_timing
from slime_core.telemetry.plain_display import PlainDisplay, make_display
from slime_core.telemetry.plots import overlay
from slime_core.telemetry.report import ReportPaths, write_report
from slime_core.telemetry.samples import Drawn, Generated, Kind, SampleRow, Shard, list_shards
from slime_core.telemetry.samples.shard import is_shard
from slime_core.telemetry.samples.store import SampleStore
from slime_core.telemetry.spans import Phase, SampleSpan, SpanLine, SpanLog
from slime_core.telemetry.tensorboard import TensorBoardTracker, tensorboard_tracker
from slime_core.telemetry.transcripts import Pair, before_and_after, prompt_text

__all__ = [
    "Display",
    "Drawn",
    "Generated",
    "Kind",
    "MetricsLog",
    "MetricsRow",
    "Pair",
    "Phase",
    "PlainDisplay",
    "ReportPaths",
    "SampleRow",
    "SampleSpan",
    "SampleStore",
    "Shard",
    "SpanLine",
    "SpanLog",
    "TensorBoardTracker",
    "before_and_after",
    "is_shard",
    "list_shards",
    "make_display",
    "overlay",
    "prompt_text",
    "run_folder_errors",
    "strip_timing",
    "tensorboard_tracker",
    "write_report",
]
