"""Unpack: the inverse of pack: rows of a table to samples, bit for bit, or to texts alone.

for entry in entries(batch): print(entry.sample.tokens)
"""

import json
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from slime_core.sample import Message, PrefixCacheInfo, Sample, SpecInfo, Status
from slime_view.samples.columns import FLOATS, INTS, MASK
from slime_view.samples.pack import Entry
from slime_view.samples.rows import SampleRow

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
ROW_COLUMNS = (
    "rollout_id",
    "source",
    "group",
    "drop_reason",
    "left_out",
    "failure_reason",
    "status",
    "remove_sample",
    "reward",
    "rewards",
    "prompt",
    "messages",
    "response",
    "label",
    "response_length",
    "weight_versions",
    "metadata",
    "others",
)
"""What `rows` reads; tokens and log-probs, most of a file, are not among it."""
_AS_STORED = (
    "group_index",
    "index",
    "failure_reason",
    "remove_sample",
    "response_length",
    "weight_versions",
    "weight_version_ends",
)
_INFOS: dict[str, type[SpecInfo] | type[PrefixCacheInfo]] = {
    "spec_info": SpecInfo,
    "prefix_cache_info": PrefixCacheInfo,
}


def entries(batch: "pa.RecordBatch") -> Iterator[Entry]:
    """The samples of a batch of rows, frozen."""
    values = {name: _numbers(batch.column(name), "i") for name in INTS}
    values |= {name: _numbers(batch.column(name), "f") for name in FLOATS}
    masks = [None if runs is None else mask_of(runs) for runs in _numbers(batch.column(MASK), "i")]
    plain = [name for name in batch.schema.names if name not in values and name != MASK]
    for number, row in enumerate(batch.select(plain).to_pylist()):
        others: dict[str, Any] = _parsed(row["others"], {}, dict)
        for name, kind in _INFOS.items():
            if name in others:
                others[name] = kind(**others[name])
        made: dict[str, object] = {
            "rollout_id": row["execution"],
            "source": row["source"],
            "status": Status(row["status"]),
            "prompt": _prompt(row),
            "response": row["response"],
            "label": _parsed(row["label"], None),
            "reward": _reward(row),
            "metadata": _parsed(row["metadata"], {}, dict),
            "train_metadata": _parsed(row["train_metadata"], None, dict),
            "loss_mask": masks[number],
        }
        made |= {name: row[name] for name in _AS_STORED}
        made |= {name: column[number] for name, column in values.items()}
        sample = Sample(**(made | others))  # type: ignore[arg-type]  # columns have the types of the schema
        yield Entry(row["source"], row["group"], row["drop_reason"], sample, row["left_out"])


def rows(batch: "pa.RecordBatch", position: Callable[[str], int]) -> Iterator[SampleRow]:
    """The texts of a batch; `position` counts the samples of a group, or of an evaluation's data set."""
    for row in batch.to_pylist():
        others: dict[str, Any] = _parsed(row["others"], {}, dict)
        yield SampleRow(
            rollout_id=row["rollout_id"],
            source=row["source"],
            group=row["group"],
            index=position(row["group"] or row["source"]),
            prompt=others.get("prompt", _prompt(row)),
            response=others.get("response", row["response"]),
            response_length=row["response_length"],
            label=_parsed(row["label"], None),
            reward=_reward(row),
            status=row["status"],
            drop_reason=row["drop_reason"],
            left_out=row["left_out"],
            failure_reason=row["failure_reason"],
            remove_sample=row["remove_sample"],
            weight_versions=row["weight_versions"],
            metadata=_parsed(row["metadata"], {}, dict),
        )


def mask_of(runs: Sequence[int]) -> "array[int]":
    """The mask that `runs_of` described."""
    mask = array("b")
    for number, length in enumerate(runs):
        mask.frombytes(bytes((1 - number % 2,)) * length)
    return mask


def _numbers(column: "pa.Array[Any]", code: str) -> list["array[int] | None"]:
    """A column of lists as typed arrays."""
    lists = cast("pa.ListArray[pa.Int32Scalar]", column)
    offsets = cast(list[int], lists.offsets.to_pylist())
    items = memoryview(lists.values.buffers()[1] or b"").cast("B")
    size, shift = array(code).itemsize, lists.values.offset
    made: list[array[int] | None] = []
    for there, begin, end in zip(lists.is_valid().to_pylist(), offsets, offsets[1:], strict=False):
        numbers: array[int] | None = None
        if there:
            numbers = array(code)
            numbers.frombytes(items[(begin + shift) * size : (end + shift) * size])
        made.append(numbers)
    return made


def _prompt(row: Mapping[str, str | None]) -> str | list[Message]:
    if (prompt := row["prompt"]) is not None:
        return prompt
    messages = _parsed(row["messages"], list[Message](), list)
    if not all(isinstance(each, dict) for each in messages):
        raise ValueError("messages are not objects")
    return messages


def _reward(row: Mapping[str, Any]) -> float | dict[str, float] | None:
    rewards: dict[str, float] = _parsed(row["rewards"], {}, dict)
    if not all(isinstance(each, int | float) for each in rewards.values()):
        raise ValueError("a part of a reward is not a number")
    return rewards if row["rewards"] is not None else cast("float | None", row["reward"])


def _parsed(text: str | None, default: T, kind: type = object) -> T:
    """What a JSON text says.

    Raises:
        ValueError: it is not JSON, or not of that kind.
    """
    if text is None:
        return default
    value: T = json.loads(text)
    if not isinstance(value, kind):
        raise ValueError(f"{text[:40]} is not of the type {kind.__name__}")
    return value
