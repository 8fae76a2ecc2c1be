"""The page docs/reference/slime-flags.md: every flag of slime, and what it is here, from slime-compat's tables.

.venv/bin/python tools/slime_flags.py            exit 1 if the page differs
.venv/bin/python tools/slime_flags.py --write    write it
"""

import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from slime_compat.flags.table import NEWEST, Flag, Outcome, advice, flags, key_of

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "slime-flags.md"


def told_here(flag: Flag) -> str:
    """The cell of the reference page: what it is here, as Markdown."""
    if flag.outcome is Outcome.SAME:
        return "the same" + (f"; {flag.told}" if flag.told else "")
    if key := key_of(flag):
        values = ", ".join(f"`{each}`" for each in flag.values.values() if isinstance(each, str))
        more = "; ".join(each for each in (f"as {values}" if values else "", advice(flag)) if each)
        return f"`{key}`" + (f"; {more}" if more else "")
    return advice(flag)


def page() -> str:
    """The page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    counts = Counter(flag.outcome.value for flag in flags().values())
    yield "<!-- written by tools/slime_flags.py -->"
    yield "# slime's flags"
    yield ""
    yield (
        f"Every flag of slime {NEWEST}, those that it had before, and those of Megatron-LM that its scripts pass on: "
        + ", ".join(f"{number} {what}" for what, number in counts.items())
        + ". What is *mapped* is taken under slime's name, with slime-compat installed; `slime plan` says for what; "
        "the rest is told to whoever types it. `slime migrate` writes a run file from a script of them. `--sglang-…` "
        "are [arguments of SGLang](../sglang.md#arguments-of-sglang), "
        "`--router-…` are `[engine.sglang.router]`, and what is not in the list of Megatron-LM's is asked of "
        "[the trainer](../megatron.md)."
    )
    for group, several in itertools.groupby(flags().values(), key=lambda flag: flag.group):
        yield ""
        yield f"## {group}"
        yield ""
        yield "| slime | here |"
        yield "|---|---|"
        for flag in several:
            yield f"| `{flag.typed}` | {told_here(flag).replace('|', chr(92) + '|')} |"


if __name__ == "__main__":
    from pages import kept

    sys.exit(kept(PAGE, page()))
