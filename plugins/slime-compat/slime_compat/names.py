"""Foreign names: keys and flags of slime, TRL, verl, OpenRLHF and peft, with their equivalents here.

A name with exactly the same meaning is accepted. For other names an error suggests our key or an alternative.

    $ slime train run.toml --learning-rate 1e-5
    Error: No such option '--learning-rate'. Did you mean '--lr'?
"""

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache, partial
from importlib.resources import files
from typing import cast

from slime_compat.flags.table import Outcome, Takes, advice, flags, key_of, meaning
from slime_core.roles import ForeignName


@cache
def other_names() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Content of names.toml: `keys` and `instead` by framework and name, `values` by framework, name and value."""
    text = files(__package__).joinpath("names.toml").read_text("utf-8")
    return cast("Mapping[str, Mapping[str, Mapping[str, str]]]", tomllib.loads(text))


def foreign_names() -> Iterator[ForeignName]:
    """All foreign names, by framework."""
    yield from slime_names()
    for framework, keys in other_names()["keys"].items():
        of_framework = cast("Mapping[str, Mapping[str, str]]", other_names()["values"].get(framework, {}))
        for name, key in keys.items():
            values = of_framework.get(name, {})
            yield ForeignName(name, key, framework=framework, values=values)
    for framework, instead in other_names()["instead"].items():
        for name, text in instead.items():
            yield ForeignName(name, framework=framework, advice=text)


def slime_names() -> Iterator[ForeignName]:
    """Flags of slime whose key differs here; every other flag is a key of the same name."""
    for name, flag in flags().items():
        if flag.outcome is Outcome.SAME or name in other_names()["keys"][""]:
            continue
        values = {value: ours for value, ours in flag.values.items() if isinstance(ours, str) and ours != value}
        key = key_of(flag)
        means = partial(meaning, flag) if flag.outcome is Outcome.MAPPED and not flag.owner else None
        yield ForeignName(
            name,
            key,
            framework="slime",
            values=values if key else {},
            advice=advice(flag),
            means=means,
            is_switch=flag.takes is Takes.NOTHING,
        )
