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


HEAD = """\
<!-- written by tools/slime_flags.py -->
# slime's flags

This page lists the flags of slime {newest}, its former flags, and Megatron-LM's that its scripts pass on:
{counts}.
*Mapped* flags are accepted with slime-compat installed, and `slime plan` prints the equivalent. For the others, the
error suggests what to write. [`slime migrate`](../migrate.md) translates a whole launch script.

`--sglang-…` are [arguments of SGLang](../sglang.md#arguments-of-sglang), and `--router-…` are in
`[engine.sglang.router]`. Other flags of Megatron-LM are settings of [the trainer](../megatron.md).
"""
TOGETHER = 3
"""Flags of a group with the same text that are listed together."""


def cell(flag: Flag) -> str:
    """What a flag is here, as Markdown."""
    if flag.outcome is Outcome.SAME:
        return "same" + (f"; {flag.note}" if flag.note else "")
    if flag.key.endswith(".path"):
        role, choice, _ = flag.key.split(".")
        typed = role.replace("_", "-")
        calls = f"`--{typed} {choice} --{typed}.{choice}.path …` calls the function as slime does"
        return f"{calls}; {flag.note}" if flag.note else calls
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
    yield HEAD.format(newest=NEWEST, counts=", ".join(f"{number} {what}" for what, number in counts.items()))
    for group, several in itertools.groupby(flags().values(), key=lambda flag: flag.group):
        yield f"## {group}"
        yield ""
        cells: dict[str, list[str]] = {}
        for flag in several:
            cells.setdefault(cell(flag), []).append(flag.typed)
        together = {what: names for what, names in cells.items() if len(names) >= TOGETHER}
        for what, names in together.items():
            yield f"{what[0].upper()}{what[1:]}:"
            yield ""
            yield "```text"
            yield from names
            yield "```"
            yield ""
        rows = [(name, what) for what, names in cells.items() if what not in together for name in names]
        if rows:
            yield "| slime | here |"
            yield "|---|---|"
            yield from (f"| `{name}` | {what.replace('|', chr(92) + '|')} |" for name, what in rows)
            yield ""


if __name__ == "__main__":
    from pages import kept

    sys.exit(kept(PAGE, page()))
