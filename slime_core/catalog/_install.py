"""Which distribution brings a choice that is not installed, and the pip line that installs it."""

import difflib
from collections.abc import Mapping

REWARD_MATH = "slime-reward-math"
FIRST_PARTY: Mapping[tuple[str, str], str] = {
    **dict.fromkeys(
        [("reward", name) for name in ("math", "deepscaler", "dapo", "f1", "gpqa", "ifbench", "remote_rm", "random")],
        REWARD_MATH,
    ),
    ("reward", "format"): REWARD_MATH,
    ("buffer", "priority"): "slime-buffer-priority",
    ("trainer", "megatron"): "slime-trainer-megatron",
    ("engine", "sglang"): "slime-engine-sglang",
    ("launcher", "ray"): "slime-launcher-ray",
}
"""Role and name of choices that are not part of the core, and the first-party distribution that brings each."""


def brought_by(role: str, name: str) -> str:
    """The first-party distribution that brings a choice, near misses and `boxed_` variants included; "" if none."""
    plain = name.rpartition("/")[2].replace("-", "_").lower().removeprefix("boxed_")
    known = [other for its_role, other in FIRST_PARTY if its_role == role]
    near = difflib.get_close_matches(plain, known, n=1, cutoff=0.75)
    return FIRST_PARTY[role, near[0]] if near else ""


def how_to_install(dist: str) -> str:
    """The line to type."""
    if dist in FIRST_PARTY.values():
        return f"Install {dist} from a checkout of slime-core: pip install ./plugins/{dist}"
    return f"If that is its name, install it: pip install {dist}"
