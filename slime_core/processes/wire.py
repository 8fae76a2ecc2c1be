"""What travels between driver and worker: pickles for groups, JSON for samples and verdicts of isolated rewards.

A reward's worker gets a copy of the fields that its spec names. The driver never unpickles a reward's answer.

Example:

    shipped = receive_sample(send_sample(sample, ("response", "label")))
    shipped.tokens      # ContractError: declare fields=(..., "tokens")
"""

import io
import json
from collections.abc import Collection, Mapping
from multiprocessing.reduction import ForkingPickler
from pathlib import PurePath

from pydantic import BaseModel, SecretStr

from slime_core.errors import ContractError
from slime_core.roles import RewardContext
from slime_core.sample import Json, Sample, plain_json, revived
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


def send_sample(sample: Sample, wanted: Collection[str]) -> dict[str, Json]:
    """The wanted fields of a sample and its `IDENTITY`, as plain JSON; TypeError for a value that JSON cannot hold."""
    return {name: plain(getattr(sample, name)) for name in {*IDENTITY, *wanted}}


def receive_sample(values: Mapping[str, Json]) -> ShippedSample:
    """The inverse of `send_sample`; shares lists and tables with `values`."""
    sample = object.__new__(ShippedSample)
    for name, value in values.items():
        setattr(sample, name, revived(name, value))
    return sample


def send_context(ctx: RewardContext) -> dict[str, Json]:
    """A reward's context, as plain JSON."""
    return {"rollout_id": ctx.rollout_id, "evaluation": ctx.evaluation, "seed": ctx.seed}


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


def plain(value: object) -> Json:
    """Any value of a sample or of settings as JSON, secrets in clear text; TypeError if JSON cannot hold it."""
    match value:
        case Mapping():
            return {str(key): plain(each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(each) for each in value]
        case SecretStr():
            return value.get_secret_value()
        case BaseModel():
            return {name: plain(getattr(value, name)) for name in type(value).model_fields}
        case PurePath():
            return str(value)
    return plain_json(value)
