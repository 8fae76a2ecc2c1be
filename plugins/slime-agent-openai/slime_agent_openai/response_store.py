"""ResponseStore: replies, items and conversations that one session stores for OpenAI's Responses; and the GET requests.

A request that names a conversation goes on from the conversation's last reply, by its id, as if it had named that: the
model's tokens stay as they are. Where items of it were deleted, or two requests wrote to it at once, its items are the
history.

Example:

    turn = store.turn({"input": "And now?", "conversation": "conv_1"})
    request, wire = read_responses(body, new_id, turn)      # turn.after: "resp_1"
    store.keep(turn, request.ids, wire.whole(reply))
    answered(store, "GET", "responses/resp_1", Value({}))
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from slime_agent_openai.errors import ApiError, refused
from slime_agent_openai.message import Message, Role, ToolCall
from slime_agent_openai.wires.values import Value, text_of, unreadable
from slime_agent_openai.wires.wire import Body, NewId, model_body, models_body
from slime_core.sample import Json

TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
THOUGHTS = {"reasoning_text": "text", "summary_text": "text", "text": "text"}
ITEMS = "message, reasoning, function_call, function_call_output and item_reference are read"
ROLES = {"system": Role.SYSTEM, "developer": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT}
PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "function_call_output": "fco"}
"""Of ids of items that came without one."""
MOST_LISTED = 100  # Items of one page


def items_of(given: Value, known: Mapping[str, Body]) -> Iterator[Value]:
    """An input, item by item; what only refers to an item is that item."""
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
        new = _item_message(item)
        if said and said[-1].role is new.role is Role.ASSISTANT:
            old = said.pop()
            new = replace(
                old, text=old.text + new.text, reasoning=old.reasoning + new.reasoning, calls=(*old.calls, *new.calls)
            )
        said.append(new)
    return said


def _item_message(item: Value) -> Message:
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
    """A page of a list of items, by the query's `limit`, `order` (the last item first by default) and `after`."""
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
    return list_body(shown, has_more=start + int(most) < len(ordered))


def list_body(items: Sequence[Body], *, has_more: bool = False) -> Body:
    """A list of items as a body."""
    first, last = (items[0]["id"], items[-1]["id"]) if items else (None, None)
    return {"object": "list", "data": [*items], "first_id": first, "last_id": last, "has_more": has_more}


@dataclass(slots=True)
class Kept:
    """A reply that may be fetched again."""

    asked: list[Body]  # The items of the request
    replied: Body  # The reply


@dataclass(slots=True)
class Conversation:
    """A conversation that is kept by name."""

    id: str  # By which clients know it
    metadata: Body  # The client's
    created: int = field(default_factory=lambda: int(time.time()))  # Seconds since 1970
    items: list[Body] = field(default_factory=list)  # What was said, in order
    last: str = ""  # The reply that ends with the first `covered` items; empty: none goes on
    covered: int = 0  # How many items that reply and what came before it are
    changes: int = 0  # How often items came or went

    @property
    def body(self) -> Body:
        return {
            "id": self.id,
            "object": "conversation",
            "created_at": self.created,
            "metadata": {**self.metadata},
        }

    def add(self, items: Iterable[Body]) -> None:
        self.items += items
        self.changes += 1

    def remove(self, name: str) -> None:
        place = next((place for place, item in enumerate(self.items) if item["id"] == name), None)
        if place is None:
            raise missing("item of this conversation", name)
        del self.items[place]
        self.changes += 1
        if place < self.covered:
            self.last, self.covered = "", 0


@dataclass(frozen=True, slots=True)
class Turn:
    """What a request for a response goes on from, and what it says."""

    after: str = ""  # Id of the reply that it follows
    before: tuple[Value, ...] = ()  # Items of its conversation since then
    said: tuple[Value, ...] = ()  # Its own items
    conversation: Conversation | None = None  # To which these and the reply are added
    changes: int = 0  # Of the conversation, when the request came
    stores: bool = True  # Whether its reply can be fetched again, or gone on from


class ResponseStore:
    """What a session stores."""

    def __init__(self, new_id: NewId) -> None:
        self.replies: dict[str, Kept] = {}  # By id
        self.conversations: dict[str, Conversation] = {}  # By id
        self._new_id = new_id
        self._items: dict[str, Body] = {}
        self._gone: set[str] = set()

    def turn(self, body: Body) -> Turn:
        asked = Value(body)
        after, named = asked.at("previous_response_id").text(""), asked.at("conversation")
        if after in self._gone:
            told = f"the reply {after!r} was not stored, or is deleted: send the history, or store replies"
            raise ApiError(404, told, code="previous_response_not_found", param="previous_response_id")
        said = tuple(items_of(asked.at("input"), self._items))
        stores = asked.at("store").flag() or not asked.at("store").is_given
        if not named.is_given:
            return Turn(after, said=said, stores=stores)
        if after:
            raise refused("conversation and previous_response_id say two things; send one of them", "conversation")
        conversation = self.conversation(named.text() if isinstance(named.json, str) else named.at("id").text())
        since = conversation.items[conversation.covered :]
        before = tuple(Value(item, "conversation") for item in since)
        return Turn(conversation.last, before, said, conversation, conversation.changes, stores)

    def keep(self, turn: Turn, ids: tuple[str, ...], replied: Body) -> None:
        asked = _list_items(turn.said, self._new_id, turn.conversation.items if turn.conversation is not None else ())
        output = replied["output"]
        assert isinstance(output, list), "it is a response"
        made = [item for item in output if isinstance(item, dict)]
        if turn.stores:
            self.replies |= dict.fromkeys(ids, Kept(asked, replied))
        else:
            self._gone.update(ids)
        if turn.stores or turn.conversation is not None:
            self._know([*made, *asked])
        if turn.conversation is not None:
            is_next = turn.conversation.changes == turn.changes
            turn.conversation.add([*asked, *made])
            turn.conversation.last = ids[0] if is_next else ""
            turn.conversation.covered = len(turn.conversation.items) if is_next else 0

    def converse(self, items: Value, metadata: Body) -> Conversation:
        begun = Conversation(self._new_id("conv"), metadata)
        self.extend(begun, items)
        self.conversations[begun.id] = begun
        return begun

    def extend(self, conversation: Conversation, items: Value) -> list[Body]:
        given = list(items_of(items, self._items))
        messages_of(given)
        added = _list_items(given, self._new_id, conversation.items)
        self._know(added)
        conversation.add(added)
        return added

    def _know(self, items: Iterable[Body]) -> None:
        """Items that requests may refer to; of two that have the same id, the one that came first."""
        self._items = {str(item["id"]): item for item in items} | self._items

    def reply(self, name: str) -> Kept:
        if (kept := self.replies.get(name)) is None:
            raise missing("reply of this session", name)
        return kept

    def conversation(self, name: str) -> Conversation:
        if (found := self.conversations.get(name)) is None:
            raise missing("conversation of this session", name, "conversation")
        return found

    def forget(self, name: str) -> None:
        self.reply(name)
        del self.replies[name]
        self._gone.add(name)


def _list_items(items: Iterable[Value], new_id: NewId, others: Iterable[Body]) -> list[Body]:
    taken = {item["id"] for item in others}
    made = []
    for item in items:
        made.append(listed(item, new_id, taken))
        taken.add(made[-1]["id"])
    return made


def missing(what: str, name: str, param: str | None = None) -> ApiError:
    """What to raise for an id that nothing has."""
    return ApiError(404, f"no {what} has the id {name!r}", code="not_found", param=param)


NO_COMPACTION = (
    "nobody would be trained on what a provider's model makes of a history; let the agent ask the model for a summary, "
    "and go on from that in a conversation of its own"
)  # Why no conversation is compacted


def answered(memory: ResponseStore, method: str, path: str, said: Value) -> Body | None:
    """Answers a request that needs no model; `path` is after /v1/, `said` the query or body. None: no such path."""
    match method, path.split("/"):
        case "GET", ["models"]:
            return models_body()
        case "GET", ["models", name]:
            return model_body(name)
        case "POST", ["responses", "compact"]:
            raise ApiError(404, f"/v1/responses/compact is not supported here: {NO_COMPACTION}", code="not_found")
        case _, ["responses", name, *rest]:
            return _response_body(memory, method, name, rest, said)
        case "POST", ["conversations"]:
            return memory.converse(said.at("items"), {**said.at("metadata").object()}).body
        case _, ["conversations", name]:
            return _conversation_body(memory, method, name, said)
        case _, ["conversations", name, "items", *item]:
            return _items_body(memory, method, name, item, said)
    return None


def _response_body(memory: ResponseStore, method: str, name: str, rest: list[str], said: Value) -> Body | None:
    match method, rest:
        case "GET", []:
            return memory.reply(name).replied
        case "GET", ["input_items"]:
            return page(memory.reply(name).asked, said)
        case "POST", ["cancel"]:
            return memory.reply(name).replied  # it has ended: nothing runs unseen
        case "DELETE", []:
            memory.forget(name)
            return {"id": name, "object": "response", "deleted": True}
    return None


def _conversation_body(memory: ResponseStore, method: str, name: str, said: Value) -> Body | None:
    if method not in ("GET", "POST", "DELETE"):
        return None
    conversation = memory.conversation(name)
    if method == "POST":
        conversation.metadata = {**said.at("metadata").object()}
    if method == "DELETE":
        del memory.conversations[name]
        return {"id": name, "object": "conversation.deleted", "deleted": True}
    return conversation.body


def _items_body(memory: ResponseStore, method: str, name: str, item: list[str], said: Value) -> Body | None:
    match method, item:
        case "POST", []:
            return list_body(memory.extend(memory.conversation(name), said.at("items")))
        case "GET", []:
            return page(memory.conversation(name).items, said)
        case "GET", [wanted]:
            found = next((each for each in memory.conversation(name).items if each["id"] == wanted), None)
            if found is None:
                raise missing("item of this conversation", wanted)
            return found
        case "DELETE", [wanted]:
            conversation = memory.conversation(name)
            conversation.remove(wanted)
            return conversation.body
    return None
