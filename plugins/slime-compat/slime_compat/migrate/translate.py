"""Translates the flags of a training command into a run file, by the tables of `slime_compat.flags`.

Example:

    translate([GivenFlag("use_tis", (), 12)], migration)
    migration.values["correction"]      # {"use": "tis"}
"""

import json
from collections.abc import Mapping, Sequence

from slime_compat.flags.table import Flag, Outcome, Takes, advice, flags, newer_names
from slime_compat.migrate.migration import GivenFlag, KeyPath, Migration, Result, Row, leaves
from slime_compat.migrate.specials import SPECIALS
from slime_core.errors import did_you_mean
from slime_core.sample import Json

ENGINE, TRAINER = ("engine", "sglang"), ("trainer", "megatron")
"""The engine and the trainer that slime's scripts imply."""
ROUTER: KeyPath = (*ENGINE, "router")


def translate(given: Sequence[GivenFlag], migration: Migration) -> None:
    """Translate every flag."""
    last = {flag.name: flag for flag in given}  # slime uses the last value of a repeated flag
    repeatable = [flag for flag in given if flag.name in flags() and flags()[flag.name].takes is Takes.AGAIN]
    order = sorted(last.values(), key=lambda flag: (not _is_weak(flag), _is_special(flag)))
    for flag in (*order, *(flag for flag in repeatable if flag is not last[flag.name])):
        _translate_flag(flag, last, migration)
    migration.rows.sort(key=lambda row: row.line)


def _is_weak(given: GivenFlag) -> bool:
    return given.name in flags() and flags()[given.name].weak


def _is_special(given: GivenFlag) -> bool:
    return given.name in flags() and bool(flags()[given.name].special)


def _translate_flag(given: GivenFlag, all_given: Mapping[str, GivenFlag], migration: Migration) -> None:
    flag = flags().get(given.name)
    if flag is not None and (flag.always or (flag.outcome is Outcome.REFUSED and flag.minor)):
        migration.note_flag(Result.NEEDLESS if flag.always else Result.MINOR, given, advice(flag))
    elif unknown := given.unknown:
        migration.note_flag(Result.LEFT_OUT, given, unknown.message)
    elif not given.name:
        migration.note_flag(Result.LEFT_OUT, given, "the value belongs to no flag")
    elif flag is None:
        _unlisted(given, migration)
    elif flag.special:
        SPECIALS[flag.special](given, all_given, migration)
    elif len(given.values) == 1 and given.values[0] in flag.harmless:
        migration.note_flag(Result.NEEDLESS, given, "this is the default")
    else:
        _listed(flag, given, migration)


def _listed(flag: Flag, given: GivenFlag, migration: Migration) -> None:
    try:
        value = value_of(flag.takes, [str(each) for each in given.values])
    except ValueError as error:
        migration.note_flag(Result.LEFT_OUT, given, str(error))
        return
    ours = flag.values.get(str(value), value)
    if flag.owner and not flag.same and (why := migration.installed.refusal(*_role(flag.owner), flag.name, value)):
        migration.note_flag(Result.MINOR if flag.minor else Result.LEFT_OUT, given, why)
    elif flag.same and flag.values and str(value) in flag.values:
        migration.note_flag(Result.LEFT_OUT, given, "slime-core does not support this value")
    elif flag.owner:
        write(migration, given, (*_role(flag.owner), flag.name), value, Result.KEPT)
    elif flag.same:
        write(migration, given, (flag.name,), value, Result.KEPT)
    elif flag.refused and str(value) not in flag.values:
        migration.note_flag(Result.MINOR if flag.minor else Result.LEFT_OUT, given, advice(flag))
    elif isinstance(ours, dict) and str(value) in flag.values:
        write_all(migration, given, ours)
    else:
        write_all(migration, given, flag.set)
        if flag.key:
            write(migration, given, tuple(flag.key.split(".")), ours, Result.MAPPED)


def _unlisted(given: GivenFlag, migration: Migration) -> None:
    """Translate a flag that no table lists: a `--no-` flag, or a flag of SGLang, its router or Megatron."""
    switch = flags().get(given.name.removeprefix("no_"))
    if switch is not None and switch.takes is Takes.EITHER and not given.values:
        write(migration, given, (switch.name,), False, Result.KEPT)
        return
    values = [_guess(str(each)) for each in given.values]
    value: Json = True if not values else values[0] if len(values) == 1 else values
    if given.name.startswith("router_"):
        name = given.name.removeprefix("router_")
        place = (*ROUTER, "policy") if name == "policy" else (*ROUTER, "args", name)
        write(migration, given, place, value, Result.MAPPED)
    elif given.name.startswith("sglang_"):
        _sglang_flag(given, value, migration)
    elif why := migration.installed.refusal(*TRAINER, given.name, value):
        near = did_you_mean(given.name, flags())
        reason = f"slime has no such flag.{near}" if why.startswith("unknown setting") else why
        migration.note_flag(Result.LEFT_OUT, given, reason)
    else:
        write(migration, given, (*TRAINER, given.name), value, Result.KEPT)


def _sglang_flag(given: GivenFlag, value: Json, migration: Migration) -> None:
    name = given.name.removeprefix("sglang_")
    why = migration.installed.refusal(*ENGINE, name, value)
    if not why:
        write(migration, given, (*ENGINE, "server", name), value, Result.KEPT)
        return
    newer = newer_names().get(name, name)
    if newer != name and not migration.installed.refusal(*ENGINE, newer, value):
        write(migration, given, (*ENGINE, "server", newer), value, Result.MAPPED)
    else:
        migration.note_flag(Result.LEFT_OUT, given, why)


def write_all(migration: Migration, given: GivenFlag, table: Mapping[str, Json]) -> None:
    """Write each setting of a table to its place."""
    for path, value in leaves(dict(table)):
        write(migration, given, path, value, Result.MAPPED)


def write(migration: Migration, given: GivenFlag, path: KeyPath, value: Json, result: Result) -> None:
    """Write a value to its place, unless another flag has written a different one."""
    existing = migration.get(*path)
    if existing is not None and existing != value:
        if path not in migration.weak:
            why = f"contradicts {'.'.join(path)} = {existing!r}, which another flag sets"
            migration.note_flag(Result.LEFT_OUT, given, why)
            return
        migration.rows = [
            Row(Result.NEEDLESS, row.flag, f"{given.typed} overrides it", row.line, row.file)
            if row.path == path
            else row
            for row in migration.rows
        ]
    if _is_weak(given):
        migration.weak.add(path)
    migration.put(path, value)
    migration.rows.append(
        Row(result, given.typed, f"{'.'.join(path)} = {json.dumps(value)}", given.line, given.file, path)
    )


def value_of(takes: Takes, texts: Sequence[str]) -> Json:
    """A flag's value, converted to its type.

    Raises:
        ValueError: the texts do not have that type.
    """
    match takes:
        case Takes.NOTHING | Takes.EITHER:
            if texts:
                raise ValueError(f"expected no value, got {' '.join(texts)!r}")
            return True
        case Takes.INTEGERS:
            return [_number(each, int) for each in texts]
        case Takes.TEXTS:
            return list(texts)
    if len(texts) != 1:
        raise ValueError(f"expected one value, got {len(texts)}")
    match takes:
        case Takes.INTEGER:
            return _number(texts[0], int)
        case Takes.NUMBER:
            return _number(texts[0], float)
        case Takes.JSON:
            value: Json = json.loads(texts[0])
            return value
    return texts[0]


def _number(text: str, kind: type[int] | type[float]) -> int | float:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"expected a {'whole ' if kind is int else ''}number, got {text!r}") from None


def _guess(text: str) -> Json:
    try:
        value: Json = json.loads(text)
    except ValueError:
        return text
    return value


def _role(asked: str) -> tuple[str, str]:
    role, name = asked.split(".")
    return role, name
