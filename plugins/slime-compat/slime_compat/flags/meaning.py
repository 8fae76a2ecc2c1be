"""What a run file says instead of a flag of slime's, where that is exactly the same.

Example:

    meaning(flags()["rm_type"], "math")         # {"reward": {"use": "math"}}
    meaning(flags()["rollout_seed"], 42)        # None: nearly the same
"""

from collections.abc import Mapping, Sequence

from slime_compat.flags.table import Flag, Outcome, Takes
from slime_core.sample import Json


def meaning(flag: Flag, value: Json) -> dict[str, Json] | None:
    """The keys that a flag with this value is; None where nothing is exactly the same."""
    if flag.outcome is not Outcome.MAPPED:
        return None
    if flag.takes is Takes.NOTHING:
        return {} if value is False else dict(flag.set) if value is True else None
    text = str(value)
    if text in flag.harmless:
        return {}
    ours = flag.values.get(text, value)
    if isinstance(ours, dict) and text in flag.values:
        return ours
    if flag.refused and text not in flag.values:
        return None
    return _with(flag.set, flag.key.split("."), ours)


def _with(tables: Mapping[str, Json], path: Sequence[str], value: Json) -> dict[str, Json]:
    """Tables with a value at a place besides."""
    inner = tables.get(path[0])
    below = inner if isinstance(inner, dict) else {}
    return {**tables, path[0]: _with(below, path[1:], value) if len(path) > 1 else value}
