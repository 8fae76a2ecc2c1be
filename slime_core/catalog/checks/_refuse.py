"""How a check says no: where it was, what was expected, what came, what to write instead."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from slime_core.errors import ContractError, PluginError, SlimeError, said_by
from slime_core.sample import GroupId


@contextmanager
def blaming(role: str, plugin: str) -> Iterator[None]:
    """Name the plugin whose code runs in this block, should it raise.

    Raises:
        PluginError: it raised something that is not an error of ours; `sys.exit` would end the run as if all were well.
    """
    try:
        yield
    except SlimeError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"{role} of plugin {plugin} raised {type(error).__name__}: {said_by(error)}") from error


def refuse(where: str, expected: str, returned: object, hint: str = "") -> NoReturn:
    """Raise the ContractError about a value of the wrong kind."""
    if inspect.iscoroutine(returned):
        returned.close()  # or Python warns about it a second time
        hint = "an `await` is missing, or the function must not be `async def`"
    text = repr(returned)
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    advice = f"; {hint}" if hint else ""
    raise ContractError(f"{where}: expected {expected}, got {type(returned).__name__} {shown}{advice}")


def check_list(where: str, expected: str, returned: object) -> Sequence[object]:
    """A sequence that is not text."""
    if not isinstance(returned, Sequence) or isinstance(returned, str | bytes):
        refuse(where, expected, returned)
    return returned


def check_reason(where: str, reason: object) -> None:
    """A countable text."""
    if not isinstance(reason, str) or not reason:
        refuse(where, "a short text", reason)


def check_position(where: str, position: object, size: int) -> None:
    """A position in a sequence of `size`."""
    kind: object = type(position)
    if kind is not int or not isinstance(position, int):
        refuse(where, "positions of type int", position, "use int(position)")
    if not 0 <= position < size:
        raise ContractError(f"{where} holds position {position}; positions run from 0 to {size - 1}")


def check_id(where: str, group_id: object) -> None:
    """A group's identity."""
    if not isinstance(group_id, GroupId):
        refuse(where, "a GroupId", group_id, "use group.id")
