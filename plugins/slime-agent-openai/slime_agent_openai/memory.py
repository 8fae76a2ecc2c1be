"""Memory: what one session stores of OpenAI's Responses: replies, their items, and conversations made of those.

A request that names a conversation goes on from the conversation's last reply, by its id, as if it had named that: so
the model's tokens stay as they are. Only where items of it were deleted, or two requests wrote to it at once, is the
history what its items say.

Example:

    turn = memory.turn({"input": "And now?", "conversation": "conv_1"})
    request, wire = read_responses(body, new_id, turn)      # turn.after: "resp_1"
    memory.keep(turn, request.ids, wire.whole(reply))
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from slime_agent_openai.errors import ApiError, refused
from slime_agent_openai.wires.items import items_of, listed, messages_of
from slime_agent_openai.wires.reading import Value
from slime_agent_openai.wires.wire import Body, NewId


@dataclass(slots=True)
class Kept:
    """A reply that may be fetched again."""

    asked: list[Body]
    """The items of the request."""
    replied: Body
    """The reply."""


@dataclass(slots=True)
class Conversation:
    """A conversation that is kept by name."""

    id: str
    """By which clients know it."""
    metadata: Body
    """The client's."""
    created: int = field(default_factory=lambda: int(time.time()))
    """Seconds since 1970."""
    items: list[Body] = field(default_factory=list)
    """What was said, in order."""
    last: str = ""
    """The reply that ends with the first `covered` items; empty: none goes on."""
    covered: int = 0
    """How many items that reply and what came before it are."""
    changes: int = 0
    """How often items came or went."""

    @property
    def body(self) -> Body:
        """As clients see it."""
        return {
            "id": self.id,
            "object": "conversation",
            "created_at": self.created,
            "metadata": {**self.metadata},
        }

    def add(self, items: Iterable[Body]) -> None:
        """Items at its end."""
        self.items += items
        self.changes += 1

    def remove(self, name: str) -> None:
        """One less.

        Raises:
            ApiError: there is no such item.
        """
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

    after: str = ""
    """Id of the reply that it follows."""
    before: tuple[Value, ...] = ()
    """Items of its conversation since then."""
    said: tuple[Value, ...] = ()
    """Its own items."""
    conversation: Conversation | None = None
    """To which these and the reply are added."""
    changes: int = 0
    """Of the conversation, when the request came."""
    stores: bool = True
    """Whether its reply can be fetched again, or gone on from."""


class Memory:
    """What a session stores."""

    def __init__(self, new_id: NewId) -> None:
        """Nothing yet; `new_id` makes ids."""
        self.replies: dict[str, Kept] = {}
        """By id."""
        self.conversations: dict[str, Conversation] = {}
        """By id."""
        self._new_id = new_id
        self._items: dict[str, Body] = {}
        self._gone: set[str] = set()

    def turn(self, body: Body) -> Turn:
        """What a request goes on from.

        Raises:
            ApiError: it goes on from what is not there.
        """
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
        """Store a reply, and add it to its conversation."""
        asked = _listed(turn.said, self._new_id, turn.conversation.items if turn.conversation is not None else ())
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
        """Begin a conversation."""
        begun = Conversation(self._new_id("conv"), metadata)
        self.extend(begun, items)
        self.conversations[begun.id] = begun
        return begun

    def extend(self, conversation: Conversation, items: Value) -> list[Body]:
        """Add items of a client's to a conversation; as they are listed.

        Raises:
            ApiError: one of them cannot be read.
        """
        given = list(items_of(items, self._items))
        messages_of(given)
        added = _listed(given, self._new_id, conversation.items)
        self._know(added)
        conversation.add(added)
        return added

    def _know(self, items: Iterable[Body]) -> None:
        """Items that requests may refer to; of two that have the same id, the one that came first."""
        self._items = {str(item["id"]): item for item in items} | self._items

    def reply(self, name: str) -> Kept:
        """A reply.

        Raises:
            ApiError: there is no such one.
        """
        if (kept := self.replies.get(name)) is None:
            raise missing("reply of this session", name)
        return kept

    def conversation(self, name: str) -> Conversation:
        """A conversation.

        Raises:
            ApiError: there is no such one.
        """
        if (found := self.conversations.get(name)) is None:
            raise missing("conversation of this session", name, "conversation")
        return found

    def forget(self, name: str) -> None:
        """Delete a reply.

        Raises:
            ApiError: there is no such one.
        """
        self.reply(name)
        del self.replies[name]
        self._gone.add(name)


def _listed(items: Iterable[Value], new_id: NewId, others: Iterable[Body]) -> list[Body]:
    """Items as they are listed beside others, each with an id of its own."""
    taken = {item["id"] for item in others}
    made = []
    for item in items:
        made.append(listed(item, new_id, taken))
        taken.add(made[-1]["id"])
    return made


def missing(what: str, name: str, param: str | None = None) -> ApiError:
    """What to raise for an id that nothing has."""
    return ApiError(404, f"no {what} has the id {name!r}", code="not_found", param=param)
