"""The sample store: everything that was generated, in one Parquet file per rollout and per evaluation.

Files are complete or absent, so they can be read while the run goes on; docs/formats.md lists the columns. pyarrow is
imported when the first file is written or read.
"""

from slime_core.telemetry import GeneratedGroups
from slime_view.samples.columns import Entry
from slime_view.samples.shard import Drawn, Kind, SampleRow, Shard, is_shard, list_shards

__all__ = ["Drawn", "Entry", "GeneratedGroups", "Kind", "SampleRow", "Shard", "is_shard", "list_shards"]
