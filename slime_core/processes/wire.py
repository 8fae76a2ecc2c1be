"""What travels between driver and worker: pickles, and JSON for the answers of isolated rewards.

A reward's worker gets a copy of the fields that its spec names. The driver never unpickles a reward's answer.

Example:

    body = pickled(([ship(sample, ("response", "label"))], ctx))
    ship(sample, ("response", "label")).tokens      # ContractError: declare fields=(..., "tokens")
"""

import io
import json
from collections.abc import Collection
from multiprocessing.reduction import ForkingPickler

from slime_core.errors import ContractError
from slime_core.sample import Json, Sample
from slime_core.score import NotApplicable, Score, Unscored, Verdict


def pickled(value: object) -> bytes:
    """Pickle a value. `ForkingPickler.dumps` returns a view of its buffer, which warns when it dies in a cycle."""
    buffer = io.BytesIO()
    ForkingPickler(buffer).dump(value)
    return buffer.getvalue()


LARGEST_ANSWER = 1 << 20
"""Bytes of one reward's answer."""
IDENTITY = ("group_index", "index")
"""Fields that are always sent: errors name a sample by them."""


def packed(value: Json) -> bytes:
    """A value as compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


class ShippedSample(Sample):
    """A copy of the fields of a sample that the spec names; reading another field raises ContractError."""

    __slots__ = ()

    def __getattr__(self, name: str) -> object:
        if name not in Sample.__dataclass_fields__:
            raise AttributeError(f"'Sample' object has no attribute {name!r}")
        raise ContractError(
            f"sample.{name} was read, but the spec does not declare it: in a worker process a sample has only "
            f"{', '.join(self.shipped())}. Write fields=(*LIGHT_FIELDS, {name!r}) in the spec"
        )

    def shipped(self) -> dict[str, object]:
        """The fields that are there."""
        return {name: getattr(Sample, name).__get__(self) for name in Sample.__dataclass_fields__ if _has(self, name)}

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        return None, self.shipped()

    def __repr__(self) -> str:
        return f"Sample({', '.join(f'{name}={value!r}' for name, value in self.shipped().items())})"


def _has(sample: Sample, name: str) -> bool:
    try:
        getattr(Sample, name).__get__(sample)
    except AttributeError:
        return False
    return True


def ship(sample: Sample, wanted: Collection[str]) -> ShippedSample:
    """A copy of the wanted fields of a sample and its `IDENTITY`; shares lists and tables with it."""
    copied = object.__new__(ShippedSample)
    for name in {*IDENTITY, *wanted}:
        setattr(copied, name, getattr(sample, name))
    return copied


def send_verdict(verdict: Verdict) -> dict[str, Json]:
    """A checked verdict, as plain JSON."""
    match verdict:
        case Score(value=value, components=components):
            return {"score": float(value), "components": {str(name): float(each) for name, each in components.items()}}
        case Unscored(reason=reason, retryable=retryable, detail=detail):
            return {"unscored": reason, "retryable": retryable, "detail": detail}
        case NotApplicable():
            return {"not_applicable": True}


def receive_verdict(values: Json) -> Verdict:
    """The inverse of `send_verdict`; ValueError for anything else."""
    match values:
        case {"score": float(value), "components": dict(components)}:
            parts = {name: each for name, each in components.items() if isinstance(each, float)}
            if len(parts) == len(components):
                return Score(value, parts)
        case {"unscored": str(reason), "retryable": bool(retryable), "detail": str(detail)} if reason:
            return Unscored(reason, retryable, detail)
        case {"not_applicable": True}:
            return NotApplicable()
    raise ValueError("a worker's answer is not a verdict")
