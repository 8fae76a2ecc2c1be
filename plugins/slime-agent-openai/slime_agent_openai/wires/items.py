"""Items of OpenAI's Responses: read as messages, and written as they are listed.

Example:

    messages_of([Value({"role": "user", "content": "Hi"}, "input[0]")])    # [Message(Role.USER, "Hi")]
    page([{"id": "msg_1"}, {"id": "msg_2"}], Value({"limit": "1"}))        # {"data": [{"id": "msg_2"}], ...}
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from slime_agent_openai.errors import ApiError
from slime_agent_openai.message import Message, Role, ToolCall
from slime_agent_openai.wires.reading import Value, text_of, unreadable
from slime_agent_openai.wires.wire import Body, NewId
from slime_core.sample import Json

TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
THOUGHTS = {"reasoning_text": "text", "summary_text": "text", "text": "text"}
ITEMS = "message, reasoning, function_call, function_call_output and item_reference are read"
ROLES = {"system": Role.SYSTEM, "developer": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT}
PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "function_call_output": "fco"}
"""Of ids of items that came without one."""
MOST_LISTED = 100
"""Items of one page."""


def items_of(given: Value, known: Mapping[str, Body]) -> Iterator[Value]:
    """An input, item by item; what only refers to an item is that item.

    Raises:
        ApiError: it is not a list of items, or refers to one that is not known.
    """
    if isinstance(given.json, str):
        yield Value({"type": "message", "role": "user", "content": given.text()}, given.path)
        return
    for item in given.each():
        if item.at("type").text("message" if item.at("role").is_given else "item_reference") != "item_reference":
            yield item
            continue
        name = item.at("id").text()
        if name not in known:
            told = f"{item.path} refers to {name!r}, and no item that this session stored has this id; send the item"
            raise ApiError(404, told, code="item_not_found", param=item.path)
        yield Value(known[name], item.path)


def messages_of(items: Iterable[Value]) -> list[Message]:
    """What they say, those of one reply put together."""
    said: list[Message] = []
    for item in items:
        new = _message(item)
        if said and said[-1].role is new.role is Role.ASSISTANT:
            old = said.pop()
            new = replace(
                old, text=old.text + new.text, reasoning=old.reasoning + new.reasoning, calls=(*old.calls, *new.calls)
            )
        said.append(new)
    return said


def _message(item: Value) -> Message:
    kind = item.at("type").text("message")
    match kind:
        case "message":
            if (role := ROLES.get(item.at("role").text())) is None:
                raise item.at("role").wrong(", ".join(ROLES))
            return Message(role, text_of(item.at("content"), TEXTS))
        case "reasoning":
            thoughts = text_of(item.at("content"), THOUGHTS) or text_of(item.at("summary"), THOUGHTS)
            return Message(Role.ASSISTANT, reasoning=thoughts)
        case "function_call":
            name = prefix(item.at("namespace").text("")) + item.at("name").text()
            call = ToolCall(item.at("call_id").text(), name, item.at("arguments").text(""))
            return Message(Role.ASSISTANT, calls=(call,))
        case "function_call_output":
            return Message(Role.TOOL, text_of(item.at("output"), TEXTS), answers=item.at("call_id").text())
    raise unreadable(item, kind, ITEMS)


def prefix(space: str) -> str:
    """What a namespace adds to the names of its functions, as the model sees them."""
    return space if not space or space.endswith("__") else f"{space}__"


def listed(item: Value, new_id: NewId, taken: Set[Json]) -> Body:
    """An item as it is listed: with an id, its own if that is not taken, and its content in parts."""
    told: Body = {"type": "message", "status": "completed"}
    told |= {key: value for key, value in item.object().items() if value is not None}
    name = item.at("id").text("")
    told["id"] = name if name and name not in taken else new_id(PREFIXES[str(told["type"])])
    if told["type"] == "message" and isinstance(content := told.get("content"), str):
        kind = "output_text" if told.get("role") == "assistant" else "input_text"
        part: Body = {"type": kind, "text": content}
        told["content"] = [part | {"annotations": [], "logprobs": []} if kind == "output_text" else part]
    return told


def page(items: Sequence[Body], query: Value) -> Body:
    """A page of a list of items, as the `limit`, `order` and `after` of a query want it.

    Args:
        items: all of them, the first one first.
        query: of the URL; `order` is "desc", the last item first, if it does not say otherwise.

    Raises:
        ApiError: the query is wrong, or `after` is none of the items.
    """
    order, after, limit = query.at("order"), query.at("after").text(""), query.at("limit")
    if order.text("desc") not in ("asc", "desc"):
        raise order.wrong('"asc" or "desc"')
    most = limit.text("20")
    if not (most.isascii() and most.isdigit() and 1 <= int(most) <= MOST_LISTED):
        raise limit.wrong(f"an integer from 1 to {MOST_LISTED}")
    ordered = list(items) if order.text("desc") == "asc" else list(items)[::-1]
    ids = [item["id"] for item in ordered]
    if after and after not in ids:
        raise ApiError(404, f"no item here has the id {after!r}", code="not_found", param="after")
    start = ids.index(after) + 1 if after else 0
    shown = ordered[start : start + int(most)]
    return whole(shown, has_more=start + int(most) < len(ordered))


def whole(items: Sequence[Body], *, has_more: bool = False) -> Body:
    """A list of items as a body."""
    first, last = (items[0]["id"], items[-1]["id"]) if items else (None, None)
    return {"object": "list", "data": [*items], "first_id": first, "last_id": last, "has_more": has_more}
