"""Wire: how one request's reply is written down, whole or as a stream of server-sent events.

A wire is made for one request, by the function that reads its body. It does no I/O and knows nothing of sessions.
What its methods give is to be used up before the next is called.

Example:

    request, wire = read_chat(body, new_id)
    wire.whole(reply)                       # the JSON body
    wire.begin(prompt_tokens); wire.add(delta); ...; wire.end(reply)      # or events, as bytes
"""

import json
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

from slime_agent_openai.errors import ApiError
from slime_agent_openai.reply import Delta, Reply
from slime_core.sample import Json

NewId: TypeAlias = Callable[[str], str]
"""Makes an id that nobody can guess, `new_id("call")` is "call_...": unique for ever."""
Body: TypeAlias = dict[str, Json]


class Wire(Protocol):
    """Writes one reply."""

    @property
    def streams(self) -> bool:
        """Whether the request asks for a stream."""
        ...

    def whole(self, reply: Reply) -> Body:
        """The body of a reply that is not streamed; of one that is, before `end` or after: as its events tell it."""
        ...

    def begin(self, prompt_tokens: int) -> Iterator[bytes]:
        """The first events."""
        ...

    def add(self, delta: Delta) -> Iterator[bytes]:
        """Events of one delta."""
        ...

    def end(self, reply: Reply) -> Iterator[bytes]:
        """The last events; only after them the client has an answer."""
        ...

    def fail(self, error: ApiError) -> Iterator[bytes]:
        """The last events of a stream that broke off: an error, which no client takes for an end."""
        ...


as_json = json.JSONEncoder(separators=(",", ":")).encode
"""JSON in ASCII, without spaces."""


def event(data: Json, name: str | None = None) -> bytes:
    """One server-sent event (HTML standard, section 9.2), in ASCII: some clients end lines at U+2028 and its like."""
    text = data if isinstance(data, str) else as_json(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()
