"""How to write here what a flag of slime's says: a sentence for whoever typed it, and a line of the reference page.

Example:

    advice(flags()["use_tis"])     # '[correction] use = "tis", or --correction tis'
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from slime_compat.flags.table import Flag, Outcome
from slime_core.sample import Json


def key_of(flag: Flag) -> str:
    """The one key of ours that it is; empty where it takes more to write it."""
    if flag.set or not flag.key:
        return ""
    role, _, rest = flag.key.partition(".")
    return role if rest in ("", "use") else ""


def advice(flag: Flag) -> str:
    """What to write instead, or why not."""
    said = [flag.told] if flag.told else []
    if flag.special:
        pass
    elif flag.key and not key_of(flag):
        said.append(_path(flag.key, flag.set))
    elif flag.set:
        said.append(" and ".join(_setting(*each) for each in _leaves(flag.set)))
    elif flag.always:
        said.append(f"leave it out: {flag.always}")
    if flag.refused:
        said.append(flag.refused)
    if flag.asks:
        said.append(f"where the trainer has it, it is a setting of [{flag.asks}]; `slime plugins show` lists them")
    if flag.until:
        said.insert(0, f"until {flag.until}")
    return "; ".join(said)


def told_here(flag: Flag) -> str:
    """The cell of the reference page: what it is here, as Markdown."""
    if flag.outcome is Outcome.SAME:
        return "the same" + (f"; {flag.told}" if flag.told else "")
    if key := key_of(flag):
        values = ", ".join(f"`{each}`" for each in flag.values.values() if isinstance(each, str))
        more = "; ".join(each for each in (f"as {values}" if values else "", advice(flag)) if each)
        return f"`{key}`" + (f"; {more}" if more else "")
    return advice(flag)


def _path(key: str, sets: Mapping[str, Json]) -> str:
    """A setting of a choice, in a run file and typed."""
    *section, setting = key.split(".")
    chosen = "".join(f'[{role}] use = "{choice}" and ' for role, choice in _uses(sets))
    typed = " ".join(f"--{role.replace('_', '-')} {choice}" for role, choice in _uses(sets))
    file, line = f"[{'.'.join(section)}] {setting} = …", f"--{_typed(section)}.{setting} …"
    calls = ", calls the function as slime does" if setting == "path" else ""
    return f"{chosen}{file}, or {f'{typed} ' if typed else ''}{line}{calls}"


def _typed(section: Sequence[str]) -> str:
    """A section in front of a setting that is typed; names keep their underscores."""
    return ".".join((section[0].replace("_", "-"), *section[1:]))


def _uses(sets: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    for role, table in sets.items():
        if isinstance(table, Mapping) and "use" in table:
            yield role, str(table["use"])


def _leaves(sets: Mapping[str, Json], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Json]]:
    for key, value in sets.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _setting(path: tuple[str, ...], value: Json) -> str:
    """One setting, in a run file and typed."""
    *section, key = path
    if section and key == "use":
        return f"[{section[0]}] use = {json.dumps(value)}, or --{section[0].replace('_', '-')} {value}"
    negated = f"--no-{key.replace('_', '-')}" if value is False else f"--{key.replace('_', '-')}"
    return f"{key} = {json.dumps(value)}, or {negated}"
