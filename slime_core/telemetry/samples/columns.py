"""Columns of a shard: their types, and how each is encoded.

Tokens and log-probs are split into streams by byte (the high bytes of ids and the exponents compress), masks are run
lengths, everything else that is not a number is text or JSON text. Encodings are the fastest that lose nothing.
"""

from functools import cache
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import pyarrow as pa

INTS = ("tokens", "rollout_top_p_token_ids", "rollout_top_p_token_offsets", "rollout_routed_experts")
"""Fields of a sample that are lists of int32."""
FLOATS = ("rollout_log_probs", "teacher_log_probs")
"""Fields of a sample that are lists of float32."""
MASK = "loss_mask_runs"
"""Lengths of the runs of a loss mask, ones first: 1 1 0 0 0 1 is [2, 3, 1]."""
REPEATED = ("rollout_id", "source", "group", "group_index", "index", "execution", "drop_reason", "status", "label")
"""Columns of few different values, which a dictionary holds once."""
OTHERS = (
    "multimodal_inputs",
    "multimodal_train_inputs",
    "multimodal_train_input_id",
    "apply_chat_template_kwargs",
    "generate_function_path",
    "custom_rm_path",
    "session_id",
    "non_generation_time",
    "spec_info",
    "prefix_cache_info",
    "trace",
)
"""Fields of a sample that are in the JSON of the column `others`, where they are not at their default."""
COMPRESSION: Literal["zstd"] = "zstd"
LEVEL = 1
"""Level 3 saves 1 % and costs a third of the speed."""


@cache
def schema() -> "pa.Schema":
    """The columns, in order."""
    import pyarrow as pa

    def many(kind: "pa.DataType") -> "pa.DataType":
        return pa.list_(pa.field("element", kind, nullable=False))

    text, number = pa.string(), pa.int64()
    fields: list[pa.Field[Any]] = [
        pa.field("rollout_id", number, nullable=False),
        pa.field("source", text, nullable=False),
        pa.field("group", text),
        pa.field("group_index", number),
        pa.field("index", number),
        pa.field("execution", number),
        pa.field("drop_reason", text),
        pa.field("status", text, nullable=False),
        pa.field("remove_sample", pa.bool_(), nullable=False),
        pa.field("reward", pa.float64()),
        pa.field("rewards", text),
        pa.field("prompt", text),
        pa.field("messages", text),
        pa.field("response", text, nullable=False),
        pa.field("label", text),
        pa.field("response_length", number, nullable=False),
        pa.field("weight_versions", many(text), nullable=False),
        pa.field("tokens", many(pa.int32()), nullable=False),
        pa.field(MASK, many(pa.int32())),
        *(pa.field(name, many(pa.float32())) for name in FLOATS),
        *(pa.field(name, many(pa.int32())) for name in INTS[1:]),
        pa.field("metadata", text),
        pa.field("train_metadata", text),
        pa.field("others", text),
    ]
    return pa.schema(fields)


def encodings() -> dict[str, str]:
    """Encoding of the columns that have no dictionary and are not plain."""
    return {f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in (*INTS, *FLOATS)}
