"""Names from elsewhere: what slime, TRL, verl, OpenRLHF and peft call keys and flags, and what those are here.

Whoever types one is told ours, or what to do instead; taken is what means exactly the same, and nothing else.

    $ slime train run.toml --learning-rate 1e-5
    Error: No such option '--learning-rate'. Did you mean '--lr'?
"""

from collections.abc import Iterator
from functools import partial

from slime_compat.flags.meaning import meaning
from slime_compat.flags.spelling import advice, key_of
from slime_compat.flags.table import Outcome, Takes, flags
from slime_compat.names import others
from slime_core.roles import ForeignName


def foreign_names() -> Iterator[ForeignName]:
    """All of them, by framework."""
    yield from slime_names()
    for framework, keys in others.KEYS.items():
        for name, key in keys.items():
            values = others.VALUES.get((framework, name), {})
            yield ForeignName(name, key, framework=framework, values=values)
    for framework, instead in others.INSTEAD.items():
        for name, text in instead.items():
            yield ForeignName(name, framework=framework, advice=text)


def slime_names() -> Iterator[ForeignName]:
    """Flags of slime that are written otherwise here; those that are not among them are keys of the same name."""
    for name, flag in flags().items():
        if flag.outcome is Outcome.SAME or name in others.KEYS[""]:
            continue
        values = {value: ours for value, ours in flag.values.items() if isinstance(ours, str) and ours != value}
        key = key_of(flag)
        means = partial(meaning, flag) if flag.outcome is Outcome.MAPPED and not flag.asks else None
        yield ForeignName(
            name,
            key,
            framework="slime",
            values=values if key else {},
            advice=advice(flag),
            means=means,
            is_switch=flag.takes is Takes.NOTHING,
        )
