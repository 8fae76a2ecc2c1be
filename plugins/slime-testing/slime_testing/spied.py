"""Samples that notice or refuse that a field is read, to see what a reward does with it.

Example:

    sample = spied(make_sample(response="4"))
    await reward(sample, ctx)
    sample.read                                  # {"response", "label"}
"""

import dataclasses
from collections.abc import Collection

from slime_core.sample import Sample

FIELDS = frozenset(item.name for item in dataclasses.fields(Sample))


class InjectedError(RuntimeError):
    """What reading a field of a faulty sample raises."""


class SpiedSample(Sample):
    """A sample that knows what was read of it."""

    read: set[str]
    """Fields that were read."""
    broken: Collection[str]
    """Fields that raise `InjectedError` when they are read."""

    def __getattribute__(self, name: str) -> object:
        own = object.__getattribute__(self, "__dict__")
        if name in FIELDS and "read" in own:
            own["read"].add(name)
            if name in own["broken"]:
                raise InjectedError(f"the contract kit lets reading {name} fail")
        return object.__getattribute__(self, name)


def spied(sample: Sample, broken: Collection[str] = ()) -> SpiedSample:
    """A copy that notices what is read, and refuses to have some fields read."""
    made = SpiedSample(**{name: getattr(sample, name) for name in FIELDS})
    made.read, made.broken = set(), broken
    return made
