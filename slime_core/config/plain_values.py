"""What any value of a run may be, before a type looks at it: text, numbers of 64 bits, lists and tables, a few deep.

Example:

    refuse_unfit({"lr": 1e-5, "reward": {"since": date(2026, 1, 31)}}, "run.toml")
    # ConfigError: "run.toml: reward.since is a date or time, which no key takes: write it as text, "2026-01-31""
"""

from collections.abc import Iterator
from datetime import date, time

from slime_core.errors import ConfigError

MAX_DEPTH = 32
"""Tables and lists in each other."""
MAX_NAME = 1_000
"""Characters of a key."""
_SHOWN = 80
_NULL = "has no value: give it one, or leave it out"


def refuse_unfit(value: object, where: str, *, allow_null: bool = False) -> None:
    """Refuse a value that no key of any type takes.

    Args:
        value: what a parser returned.
        where: the file or flag, for messages.
        allow_null: accept null, as JSON on the command line may say it.

    Raises:
        ConfigError: naming the place of the first such value, what is wrong with it and what is allowed.
    """
    for problem in _problems(value, "", 0):
        if not (allow_null and problem.endswith(_NULL)):
            raise ConfigError(f"{where}: {problem}")


def shown(value: object) -> str:
    """A value for a message, cut to the length that a line can bear."""
    text = repr(value)
    return text if len(text) <= 2 * _SHOWN else f"{text[:_SHOWN]} [...] {text[-_SHOWN:]}"


def _problems(value: object, path: str, depth: int) -> Iterator[str]:
    place = path if len(path) <= 2 * _SHOWN else f"{path[:_SHOWN]}[...]"
    if depth > MAX_DEPTH:
        yield f"{place or 'the value'} is nested over {MAX_DEPTH} deep, which no key takes: flatten it"
        return
    match value:
        case dict():
            for key, each in value.items():
                yield from _of_key(key, place)
                yield from _problems(each, f"{path}.{key}" if path else str(key), depth + 1)
        case list():
            for each in value:
                yield from _problems(each, path, depth + 1)
        case date() | time():
            yield f'{place} is a date or time, which no key takes: write it as text, "{value}"'
        case None:
            yield f"{place} {_NULL}"
        case str() if fault := _fault(value):
            yield f"{place or 'the value'} = {shown(value)} holds {fault}: take it out"
        case int() if not -(2**63) <= value < 2**63:
            yield f"{place or 'the value'} is an integer of {value.bit_length()} bits; at most 64 are allowed"
        case str() | bool() | int() | float():
            pass
        case _:
            yield f"{place} is a {type(value).__name__}, which no key takes: write text, numbers, lists or tables"


def _of_key(key: object, path: str) -> Iterator[str]:
    if not isinstance(key, str):
        yield f'the key {shown(key)} of {path or "the file"} is not text: write "{key}"'
    elif len(key) > MAX_NAME:
        yield f"the key {shown(key)} has {len(key)} characters; at most {MAX_NAME} are allowed"
    elif fault := _fault(key):
        yield f"the key {shown(key)} holds {fault}: take it out"


def _fault(text: str) -> str:
    """The kind of character that no file name, environment variable or UTF-8 file can hold; empty if there is none."""
    if "\0" in text:
        return "a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "half a surrogate pair, which is not Unicode text"
    return ""
