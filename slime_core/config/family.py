"""Family: the base of the core's own keys, flat in the run file; nothing in them is read from the environment."""

from typing import ClassVar

from slime_core.roles import Settings


class Family(Settings):
    """Base of the families."""

    _reads_environment: ClassVar[bool] = False


def given_in(family: Family) -> frozenset[str]:
    """The keys whose value is not their default."""
    fields = type(family).model_fields.items()
    return frozenset(key for key, info in fields if getattr(family, key) != info.get_default(call_default_factory=True))
