"""ForeignName: what another framework calls a key or a flag, so that who types it is told what it is here.

It is taken for ours only where it means exactly the same, and `slime plan` says for what: a name that means nearly the
same is a run that does nearly what was meant, and is told.

Example:

    ForeignName("learning_rate", "lr", framework="TRL")
    ForeignName("rm_type", framework="slime", means=lambda value: {"reward": {"use": value}})
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slime_core.sample import Json


@dataclass(frozen=True, slots=True)
class ForeignName:
    """One name from elsewhere; yielded by the hook `slime_foreign_names`."""

    name: str
    """The key as it is written there, with underscores; case does not count."""
    key: str = ""
    """Our key for it, or for the closest thing to it; empty where there is none."""
    framework: str = field(default="", kw_only=True)
    """Whose name it is; empty where several use it."""
    values: Mapping[str, Json] = field(default_factory=dict, kw_only=True, hash=False)
    """What their values are here, where they differ."""
    advice: str = field(default="", kw_only=True)
    """What to do instead, or besides: what to write, or why there is no such thing."""
    means: Callable[[Json], Mapping[str, Json] | None] | None = field(default=None, kw_only=True, compare=False)
    """What a run file says instead of it with a value, where that is exactly the same: then it is taken. None, also as
    what it returns for some values: it is told."""
    is_switch: bool = field(default=False, kw_only=True)
    """Of one that is taken: whether it is typed without a value, which is then true."""

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name != self.name.lower():
            raise ValueError(f"ForeignName {self.name!r}: write it in small letters, with underscores")
        if not self.key and not self.advice and self.means is None:
            raise ValueError(f"ForeignName {self.name!r}: give the key that it is here, what it means, or advice")
        if self.values and not self.key:
            raise ValueError(f"ForeignName {self.name!r}: values are of a key, and none is given")
