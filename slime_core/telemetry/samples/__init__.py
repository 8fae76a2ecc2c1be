"""The sample store: everything that was generated, one columnar file (parquet) a rollout and an evaluation.

Files are complete or absent, so they can be read while the run goes on; docs/formats.md lists the columns. pyarrow is
imported when the first file is written or read.
"""

from slime_core.telemetry.samples.pack import Entry
from slime_core.telemetry.samples.rows import SampleRow
from slime_core.telemetry.samples.shard import Drawn, Generated, Kind, Shard, list_shards

__all__ = ["Drawn", "Entry", "Generated", "Kind", "SampleRow", "Shard", "list_shards"]
