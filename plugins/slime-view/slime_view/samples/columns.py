"""Columns: converts samples to a table of Parquet columns and back, losing only secrets.

Most fields of a sample have a separate column. The others are JSON in the column `others`, unless they have their
default. Ids are split into streams by byte, of which the high ones compress well.

Example:

    table = pack([Entry("train", "train:e0:r17:d17", None, sample)], rollout_id=3)
    [entry] = unpack(table)
"""

import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar, cast

from slime_core.sample import Json, Message, Sample, plain_json, scalar_reward
from slime_core.secrets import REDACTOR

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
NUMBERS = {
    "tokens": "i",
    "loss_mask": "b",
    "rollout_log_probs": "f",
    "teacher_log_probs": "f",
    "rollout_top_p_token_ids": "i",
    "rollout_top_p_token_offsets": "i",
    "rollout_routed_experts": "i",
}
"""Fields of a sample that are lists of numbers, and the code of `array` for each."""
PLAIN = (
    "group_index",
    "index",
    "failure_reason",
    "remove_sample",
    "response_length",
    "weight_versions",
    "weight_version_ends",
)
"""Fields that a column stores unchanged."""
JSON_TEXT = ("label", "metadata", "train_metadata")
"""Fields that a column stores as JSON; null for None and for an empty object."""
OWN = ("rollout_id", "source", "prompt", "response", "reward", "status", *NUMBERS, *PLAIN, *JSON_TEXT)
"""Fields of a sample that have one or more separate columns."""
OTHERS = tuple(each.name for each in fields(Sample) if each.name not in OWN)
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
    "loss_mask.list.element",
)
"""Columns with few distinct values, stored with dictionary and run-length encoding."""
Codec: TypeAlias = Literal["gzip", "brotli", "lz4", "zstd", "snappy", "none"]
_DEFAULT = Sample()
_READABLE = json.JSONEncoder(ensure_ascii=False, default=plain_json)
_ESCAPED = json.JSONEncoder(default=plain_json)


class Entry(NamedTuple):
    """A sample and where it belongs."""

    source: str
    """Name of its data set."""
    group: str | None
    """Identity of its group; None in an evaluation."""
    drop_reason: str | None
    """Why the group was dropped; None when it was kept."""
    sample: Sample
    """The sample, finished."""
    left_out: bool = False
    """Whether it failed, and its group continued without it."""


@cache
def schema() -> "pa.Schema":
    """The columns, in order."""
    import pyarrow as pa

    def many(kind: "pa.DataType") -> "pa.DataType":
        return pa.list_(pa.field("element", kind, nullable=False))

    text, number = pa.string(), pa.int64()
    kinds: dict[str, pa.DataType] = {"i": pa.int32(), "b": pa.int8(), "f": pa.float32()}
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
        *(pa.field(name, many(kinds[code]), nullable=name != "tokens") for name, code in NUMBERS.items()),
        pa.field("metadata", text),
        pa.field("train_metadata", text),
        pa.field("others", text),
    ]
    return pa.schema(made)


def encodings() -> dict[str, str]:
    """Encoding of the columns that use neither dictionary nor plain encoding."""
    return {f"{name}.list.element": "BYTE_STREAM_SPLIT" for name, code in NUMBERS.items() if code == "i"}


def codecs() -> dict[str, Codec]:
    """How each column is compressed.

    Mantissas are noise: zstd saves 0.5 bytes per token and costs 3 us per sample; snappy only finds runs of zeros.
    """
    floats = {name for name, code in NUMBERS.items() if code == "f"}
    return {
        f"{field.name}.list.element" if "list" in str(field.type) else field.name: (
            "snappy" if field.name in floats else "zstd"
        )
        for field in schema()
    }


def pack(entries: Sequence[Entry], rollout_id: int) -> "pa.Table":
    """One row per entry.

    Raises:
        TypeError: a sample holds a value that JSON cannot represent.
    """
    import numpy as np
    import pyarrow as pa

    samples = [entry.sample for entry in entries]
    columns = [list(column) for column in zip(*map(_own_columns, entries), strict=True)]
    found: dict[str, list[Any]] = dict(zip(_OWN_COLUMNS, columns, strict=True))
    found["rollout_id"] = [rollout_id] * len(entries)
    found |= {name: [getattr(sample, name) for sample in samples] for name in PLAIN if name != "failure_reason"}
    for name, code in NUMBERS.items():
        lists = (getattr(sample, name) for sample in samples)
        found[name] = [None if each is None else np.asarray(_typed(each, code)) for each in lists]
    return pa.Table.from_arrays([pa.array(found[each.name], each.type) for each in schema()], schema=schema())


def _typed(values: Sequence[float], code: str) -> "array[Any]":
    # `array` rejects values out of range; numpy would truncate or wrap them.
    return values if isinstance(values, array) and values.typecode == code else array(code, values)


_OWN_COLUMNS = (
    "source",
    "group",
    "drop_reason",
    "left_out",
    "execution",
    "status",
    "failure_reason",
    "reward",
    "rewards",
    "prompt",
    "messages",
    "response",
    "others",
    *JSON_TEXT,
)


def _own_columns(entry: Entry) -> Sequence[object]:
    sample = entry.sample
    others: dict[str, object] = {} if sample.source == entry.source else {"source": sample.source}
    others |= {name: value for name in OTHERS if (value := getattr(sample, name)) != getattr(_DEFAULT, name)}
    is_text = isinstance(sample.prompt, str)
    prompt = _exact("prompt", cast(str, sample.prompt), others) if is_text else None
    response = _exact("response", sample.response, others)
    return (
        entry.source,
        entry.group,
        _readable(entry.drop_reason),
        entry.left_out,
        sample.rollout_id,
        sample.status.value,
        _readable(sample.failure_reason),
        None if sample.reward is None else float(scalar_reward(sample)),
        _json(sample.reward) if isinstance(sample.reward, dict) else None,
        prompt,
        None if is_text else _json(sample.prompt),
        response,
        _json(others) if others else None,
        None if sample.label is None else _json(sample.label),
        _json(sample.metadata) if sample.metadata else None,
        None if sample.train_metadata is None else _json(sample.train_metadata),
    )


def _exact(name: str, text: str, others: dict[str, object]) -> str:
    """A text valid in UTF-8; if a model emits half a surrogate pair, `others` keeps the exact text."""
    text = REDACTOR.redact(text)
    clean = _clean(text)
    if clean != text:
        others[name] = text
    return clean


def _readable(text: str | None) -> str | None:
    return None if text is None else _clean(REDACTOR.redact(text))


def _clean(text: str) -> str:
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _json(value: object) -> str:
    """JSON text without secrets: a tool or a judge may have echoed the API key of its request."""
    if REDACTOR:
        value = REDACTOR.redact_data(json.loads(_ESCAPED.encode(value)))
    text = _READABLE.encode(value)
    return text if _clean(text) == text else _ESCAPED.encode(value)


def unpack(batch: "pa.RecordBatch | pa.Table") -> Iterator[Entry]:
    """The samples of a table that `pack` made, frozen, bit for bit.

    Raises:
        ValueError: a column holds invalid data.
    """
    numbers = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in NUMBERS}
    plain = [name for name in batch.schema.names if name not in NUMBERS]
    for number, row in enumerate(batch.select(plain).to_pylist()):
        made: dict[str, Any] = {name: row[name] for name in ("source", "status", "response", *PLAIN)}
        made["rollout_id"] = row["execution"]
        made["prompt"] = row["prompt"] if row["prompt"] is not None else _messages(row["messages"])
        made["reward"] = row["reward"] if row["rewards"] is None else _rewards(row["rewards"])
        made["label"] = _parsed(row["label"], None)
        made["metadata"] = _parsed(row["metadata"], {}, dict)
        made["train_metadata"] = _parsed(row["train_metadata"], None, dict)
        others = _parsed(row["others"], dict[str, Json](), dict)
        sample = Sample.from_dict(made | others)
        for name, code in NUMBERS.items():
            if (values := numbers[name][number]) is not None:
                setattr(sample, name, array(code, values.tobytes()))
        yield Entry(row["source"], row["group"], row["drop_reason"], sample, row["left_out"])


def _messages(text: str | None) -> list[Message]:
    messages = _parsed(text, list[Message](), list)
    if not all(isinstance(each, dict) for each in messages):
        raise ValueError("messages are not objects")
    return messages


def _rewards(text: str) -> dict[str, float]:
    rewards = _parsed(text, dict[str, float](), dict)
    if not all(isinstance(each, int | float) for each in rewards.values()):
        raise ValueError("a part of a reward is not a number")
    return rewards


def _parsed(text: str | None, default: T, kind: type = object) -> T:
    """The value of a JSON text, or `default`.

    Raises:
        ValueError: it is not JSON, or not of that kind.
    """
    if text is None:
        return default
    value: T = json.loads(text)
    if not isinstance(value, kind):
        raise ValueError(f"{text[:40]} is not of the type {kind.__name__}")
    return value
