"""Pack: samples to a table of columns, losing nothing but secrets.

Numbers go in as the bytes of the typed arrays that a frozen sample holds, 0.2 us for a thousand of them.

    table = pack([Entry("train", "train:e0:r17:d17", None, sample)], rollout_id=3)
"""

import json
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from slime_core.sample import Json, Sample, plain_json, scalar_reward
from slime_core.secrets import REDACTOR
from slime_view.samples.columns import FLOATS, INTS, MASK, OTHERS, schema

if TYPE_CHECKING:
    import pyarrow as pa


Code: TypeAlias = Literal["i", "f"]
"""int32 or float32, as `array` calls them."""


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
    """Whether it failed, and its group went on without it."""


_others = attrgetter(*OTHERS)
_DEFAULTS = _others(Sample())
_READABLE = json.JSONEncoder(ensure_ascii=False, default=plain_json)
_ESCAPED = json.JSONEncoder(default=plain_json)


def pack(entries: Sequence[Entry], rollout_id: int) -> "pa.Table":
    """One row an entry.

    Raises:
        TypeError: a sample holds what JSON cannot keep.
    """
    import pyarrow as pa

    samples = [entry.sample for entry in entries]
    texts = [_texts(entry) for entry in entries]
    columns: dict[str, Iterable[object] | pa.Array[Any]] = {
        "rollout_id": [rollout_id] * len(entries),
        "source": [entry.source for entry in entries],
        "group": [entry.group for entry in entries],
        "drop_reason": [_readable_or_none(entry.drop_reason) for entry in entries],
        "failure_reason": [_readable_or_none(sample.failure_reason) for sample in samples],
        "left_out": [entry.left_out for entry in entries],
        "execution": [sample.rollout_id for sample in samples],
        "status": [sample.status.value for sample in samples],
        "reward": [None if sample.reward is None else float(scalar_reward(sample)) for sample in samples],
        "rewards": [_json(sample.reward) if isinstance(sample.reward, dict) else None for sample in samples],
        "label": [_json_or_none(sample.label) for sample in samples],
        "metadata": [_json_or_none(sample.metadata or None) for sample in samples],
        "train_metadata": [_json_or_none(sample.train_metadata) for sample in samples],
        MASK: _lists([None if each.loss_mask is None else runs_of(each.loss_mask) for each in samples], "i"),
    }
    for position, name in enumerate(("prompt", "messages", "response", "others")):
        columns[name] = [each[position] for each in texts]
    columns |= {name: _lists([getattr(sample, name) for sample in samples], "i") for name in INTS}
    columns |= {name: _lists([getattr(sample, name) for sample in samples], "f") for name in FLOATS}
    for name in schema().names:
        if name not in columns:
            columns[name] = [getattr(sample, name) for sample in samples]
    arrays = [
        made if isinstance(made := columns[field.name], pa.Array) else pa.array(made, field.type) for field in schema()
    ]
    return pa.Table.from_arrays(arrays, schema=schema())


def runs_of(mask: Sequence[int]) -> "array[int]":
    """Lengths of the runs of a mask, ones first."""
    data, runs = bytes(mask), array("i")
    place, bit = 0, 1
    while place < len(data):
        end = data.find(1 - bit, place)
        end = len(data) if end < 0 else end
        runs.append(end - place)
        place, bit = end, 1 - bit
    return runs


def _lists(values: Sequence[Sequence[float] | None], code: Code) -> "pa.Array[Any]":
    """A column of lists, from the bytes of typed arrays."""
    import pyarrow as pa

    kind = pa.int32() if code == "i" else pa.float32()
    of = pa.list_(pa.field("element", kind, nullable=False))
    if all(value is None for value in values):
        return pa.nulls(len(values), of)
    ends = array("i", accumulate((0 if value is None else len(value) for value in values), initial=0))
    # Arrow's allocator keeps its pages; joined bytes cost a page fault every 4 KiB, 2.5 us a sample.
    held = pa.allocate_buffer(4 * ends[-1])
    view = memoryview(held).cast("B").cast(code)
    for value, begin, end in zip(values, ends, ends[1:], strict=False):
        if value is not None:
            view[begin:end] = value if isinstance(value, array) and value.typecode == code else array(code, value)
    items = pa.Array.from_buffers(kind, ends[-1], [None, held])
    offsets = pa.Array.from_buffers(pa.int32(), len(ends), [None, pa.py_buffer(ends)])
    missing = pa.array([value is None for value in values], pa.bool_()) if None in values else None
    made: pa.Array[Any] = pa.ListArray.from_arrays(offsets, items, type=of, mask=missing)  # type: ignore[call-overload]  # its stubs know no mask
    return made


def _texts(entry: Entry) -> tuple[str | None, str | None, str, str | None]:
    """Prompt, messages, response, and what the other columns cannot hold."""
    sample = entry.sample
    others: dict[str, object] = {} if sample.source == entry.source else {"source": sample.source}
    if (values := _others(sample)) != _DEFAULTS:
        others |= {
            name: value for name, value, default in zip(OTHERS, values, _DEFAULTS, strict=True) if value != default
        }
    prompt, messages = None, None
    if isinstance(sample.prompt, str):
        prompt = _exact("prompt", sample.prompt, others)
    else:
        messages = _json(sample.prompt)
    response = _exact("response", sample.response, others)
    return prompt, messages, response, _json(others) if others else None


def _exact(name: str, text: str, others: dict[str, object]) -> str:
    """A text that UTF-8 can hold; a model may emit half a surrogate pair, and then the exact text is among `others`."""
    text = REDACTOR.redact(text)
    clean = _clean(text)
    if clean != text:
        others[name] = text
    return clean


def _readable_or_none(text: str | None) -> str | None:
    return None if text is None else _readable(text)


def _readable(text: str) -> str:
    """A text of ours that a plugin worded."""
    return _clean(REDACTOR.redact(text))


def _clean(text: str) -> str:
    if text.isascii():  # known without looking
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text


def _json_or_none(value: Json) -> str | None:
    return None if value is None else _json(value)


def _json(value: object) -> str:
    """JSON text without secrets: a tool or a judge may have answered with the key that it was asked with."""
    if REDACTOR:
        value = REDACTOR.redact_data(json.loads(_ESCAPED.encode(value)))
    text = _READABLE.encode(value)
    return text if _clean(text) == text else _ESCAPED.encode(value)
