"""Columns of a shard: their types, and how each is encoded.

Tokens are split into streams by byte, of which the high ones compress; masks are run lengths; what is neither a number
nor a list of them is text or JSON text. Of the encodings that lose nothing these are the fastest.
"""

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from slime_core.sample import Sample

if TYPE_CHECKING:
    import pyarrow as pa

INTS = ("tokens", "rollout_top_p_token_ids", "rollout_top_p_token_offsets", "rollout_routed_experts")
"""Fields of a sample that are lists of int32."""
FLOATS = ("rollout_log_probs", "teacher_log_probs")
"""Fields of a sample that are lists of float32."""
MASK = "loss_mask_runs"
"""Lengths of the runs of a loss mask, ones first: 1 1 0 0 0 1 is [2, 3, 1]."""
REPEATED = (
    "rollout_id",
    "source",
    "group",
    "group_index",
    "index",
    "execution",
    "drop_reason",
    "failure_reason",
    "status",
    "label",
)
"""Columns of few different values, which a dictionary holds once."""
OWN = (
    "group_index",
    "index",
    "rollout_id",
    "source",
    "prompt",
    "response",
    "response_length",
    "label",
    "reward",
    "loss_mask",
    "weight_versions",
    "weight_version_ends",
    "remove_sample",
    "status",
    "failure_reason",
    "metadata",
    "train_metadata",
    *INTS,
    *FLOATS,
)
"""Fields of a sample that have a column, or several, of their own."""
OTHERS = tuple(each.name for each in fields(Sample) if each.name not in OWN)
"""All other fields: they are in the JSON of the column `others`, where they are not at their default."""
LEVEL = 1
"""Level of zstd; level 3 saves 1 % and costs a third of the speed."""
Codec: TypeAlias = Literal["gzip", "brotli", "lz4", "zstd", "snappy", "none"]
"""What Parquet compresses with."""


@cache
def schema() -> "pa.Schema":
    """The columns, in order."""
    import pyarrow as pa

    def many(kind: "pa.DataType") -> "pa.DataType":
        return pa.list_(pa.field("element", kind, nullable=False))

    text, number = pa.string(), pa.int64()
    made: list[pa.Field[Any]] = [
        pa.field("rollout_id", number, nullable=False),
        pa.field("source", text, nullable=False),
        pa.field("group", text),
        pa.field("group_index", number),
        pa.field("index", number),
        pa.field("execution", number),
        pa.field("drop_reason", text),
        pa.field("left_out", pa.bool_(), nullable=False),
        pa.field("status", text, nullable=False),
        pa.field("failure_reason", text),
        pa.field("remove_sample", pa.bool_(), nullable=False),
        pa.field("reward", pa.float64()),
        pa.field("rewards", text),
        pa.field("prompt", text),
        pa.field("messages", text),
        pa.field("response", text, nullable=False),
        pa.field("label", text),
        pa.field("response_length", number, nullable=False),
        pa.field("weight_versions", many(text), nullable=False),
        pa.field("weight_version_ends", many(pa.int32()), nullable=False),
        pa.field("tokens", many(pa.int32()), nullable=False),
        pa.field(MASK, many(pa.int32())),
        *(pa.field(name, many(pa.float32())) for name in FLOATS),
        *(pa.field(name, many(pa.int32())) for name in INTS[1:]),
        pa.field("metadata", text),
        pa.field("train_metadata", text),
        pa.field("others", text),
    ]
    return pa.schema(made)


def encodings() -> dict[str, str]:
    """Encoding of the columns that have no dictionary and are not plain."""
    return {_leaf(schema().field(name)): "BYTE_STREAM_SPLIT" for name in INTS}


def codecs() -> dict[str, Codec]:
    """How each column is compressed.

    Mantissas are noise: zstd takes 0.5 bytes a token off and costs 3 us a sample; snappy finds runs of zeros alone.
    """
    return {_leaf(field): "snappy" if field.name in FLOATS else "zstd" for field in schema()}


def levels() -> dict[str, int]:
    """Level of each column's codec, where it has one."""
    return {name: LEVEL for name, codec in codecs().items() if codec == "zstd"}


def _leaf(field: "pa.Field[Any]") -> str:
    """What Parquet calls the column of a field's values."""
    import pyarrow as pa

    return f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name
