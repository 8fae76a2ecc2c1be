"""What goes to a worker and what comes back, as JSON: nothing that a plugin answers is ever unpickled.

Example:

    shipped = receive_sample(send_sample(sample, ("response", "label")))
    shipped.tokens      # ContractError: declare fields=(..., "tokens")
"""

import enum
import json
from array import array
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from pathlib import PurePath
from typing import cast

from pydantic import BaseModel, SecretStr

from slime_core.errors import ContractError
from slime_core.roles import RewardContext
from slime_core.sample import Json, PrefixCacheInfo, Sample, SpecInfo, Status
from slime_core.score import NotApplicable, Score, Unscored, Verdict

LARGEST_ANSWER = 1 << 20
"""Bytes; a verdict has no use for more."""
IDENTITY = ("group_index", "index")
"""Fields that are always sent: errors name a sample by them."""


def packed(value: Json) -> bytes:
    """A value as it is sent to another process."""
    return json.dumps(value, separators=(",", ":")).encode()


class ShippedSample(Sample):
    """A copy of those fields of a sample that the spec names; reading another says so."""

    __slots__ = ()

    def __getattr__(self, name: str) -> object:
        """Called for what is not there.

        Raises:
            ContractError: a field that was not shipped.
            AttributeError: no field of a sample at all.
        """
        if name not in Sample.__dataclass_fields__:
            raise AttributeError(f"'Sample' object has no attribute {name!r}")
        raise ContractError(
            f"sample.{name} was read, but the spec does not declare it: in a thread or a worker process a sample "
            f"has only {', '.join(self.shipped())}. Write fields=(*LIGHT_FIELDS, {name!r}) in the spec"
        )

    def shipped(self) -> dict[str, object]:
        """The fields that are there."""
        return {name: value for name in Sample.__dataclass_fields__ if (value := _there(self, name)) is not _ABSENT}

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        return None, self.shipped()

    def __repr__(self) -> str:
        return f"Sample({', '.join(f'{name}={value!r}' for name, value in self.shipped().items())})"


_ABSENT = object()


def _there(sample: Sample, name: str) -> object:
    slot = getattr(Sample, name)
    try:
        return slot.__get__(sample)
    except AttributeError:
        return _ABSENT


def send_sample(sample: Sample, wanted: Collection[str]) -> dict[str, Json]:
    """The wanted fields of a sample and those that errors name it by, as plain JSON.

    Raises:
        TypeError: a field holds what JSON cannot keep.
    """
    return {name: plain(getattr(sample, name)) for name in {*IDENTITY, *wanted}}


_REVIVE: Mapping[str, Callable[[Json], object]] = {
    "status": Status,
    "spec_info": lambda value: SpecInfo(**cast(dict[str, int], value)),
    "prefix_cache_info": lambda value: PrefixCacheInfo(**cast(dict[str, int], value)),
}


def receive_sample(values: Mapping[str, Json]) -> ShippedSample:
    """The inverse of `send_sample`; shares lists and tables with `values`."""
    sample = object.__new__(ShippedSample)
    for name, value in values.items():
        setattr(sample, name, _REVIVE[name](value) if name in _REVIVE else value)
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
    """The inverse of `send_verdict`.

    Raises:
        ValueError: it is not a verdict.
    """
    match values:
        case {"score": float(value), "components": dict(components)}:
            parts = {name: each for name, each in components.items() if isinstance(each, float)}
            if len(parts) == len(components):
                return Score(value, parts)
        case {"unscored": str(reason), "retryable": bool(retryable), "detail": str(detail)} if reason:
            return Unscored(reason, retryable, detail)
        case {"not_applicable": True}:
            return NotApplicable()
    raise ValueError("a worker answered with what is not a verdict")


def plain(value: object) -> Json:
    """Any value of a sample or of settings, as JSON; secrets are spelt out, for they go to a worker only.

    Raises:
        TypeError: JSON cannot keep it.
    """
    match value:
        case enum.Enum():
            return plain(value.value)
        case None | bool() | int() | float() | str():
            return value
        case array():
            return cast(Json, value.tolist())
        case Mapping():
            return {str(key): plain(each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(each) for each in value]
        case SpecInfo() | PrefixCacheInfo():
            return {item.name: getattr(value, item.name) for item in fields(value)}
        case SecretStr():
            return value.get_secret_value()
        case BaseModel():
            return {name: plain(getattr(value, name)) for name in type(value).model_fields}
        case PurePath():
            return str(value)
    raise TypeError(f"{type(value).__name__} {value!r:.80} cannot be sent to a worker process: JSON cannot keep it")
