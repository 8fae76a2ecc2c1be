"""What a run file says instead of a flag of slime's, where that is exactly the same.

Example:

    meaning(flags()["rm_type"], "math")         # {"reward": {"use": "math"}}
    meaning(flags()["rollout_seed"], 42)        # None: nearly the same
"""

from slime_compat.flags.table import Flag, Outcome, Takes
from slime_core.config import merge
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
    *sections, key = flag.key.split(".")
    table: dict[str, Json] = {key: ours}
    for section in reversed(sections):
        table = {section: table}
    return merge(flag.set, table)
