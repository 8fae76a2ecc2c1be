"""Wire: how one request's reply is written, whole or as server-sent events; bodies of errors and of models.

A wire is made for one request by the function that reads its body. It does no I/O and knows no session. Use up what
a method yields before you call the next.

Example:

    request, wire = read_chat(body, new_id)
    wire.whole(reply)                       # the JSON body
    wire.begin(prompt_tokens); wire.add(delta); ...; wire.end(reply)      # or events, as bytes
"""

import json
from collections.abc import Callable, Iterator
from typing import Protocol, TypeAlias

from slime_agent_openai.errors import ApiError
from slime_agent_openai.message import Delta, Reply
from slime_core.sample import Json

NewId: TypeAlias = Callable[[str], str]
"""Makes an id that nobody can guess, `new_id("call")` is "call_...": unique for ever."""
Body: TypeAlias = dict[str, Json]


class Wire(Protocol):
    """Writes one reply."""

    @property
    def streams(self) -> bool: ...

    def whole(self, reply: Reply) -> Body:
        """The body of a reply that is not streamed; of one that is, before `end` or after: as its events tell it."""
        ...

    def begin(self, prompt_tokens: int) -> Iterator[bytes]: ...

    def add(self, delta: Delta) -> Iterator[bytes]: ...

    def end(self, reply: Reply) -> Iterator[bytes]:
        """The last events; only after them the client has an answer."""
        ...

    def fail(self, error: ApiError) -> Iterator[bytes]:
        """The last events of a stream that broke off: an error, which no client takes for an end."""
        ...


as_json = json.JSONEncoder(separators=(",", ":")).encode  # JSON in ASCII, without spaces


def event(data: Json, name: str | None = None) -> bytes:
    """One server-sent event (HTML standard, section 9.2), in ASCII: some clients end lines at U+2028 and its like."""
    text = data if isinstance(data, str) else as_json(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def openai_error(error: ApiError) -> Body:
    """As OpenAI's clients read it."""
    return {"error": {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}}


def anthropic_error(error: ApiError) -> Body:
    """As Anthropic's clients read it; some go by `details.error_code`, as when threads are refused."""
    details: dict[str, Json] = {"error_code": error.code}
    if error.param is not None:
        details["param"] = error.param
    return {"type": "error", "error": {"type": error.kind, "message": error.message, "details": details}}


MODEL = "policy"  # What the model is called when nobody calls it anything


def models_body(*names: str) -> Body:
    """The list of models; without names, of the one that there is."""
    known = names or (MODEL,)
    models: list[Json] = [model_body(name) for name in known]
    return {"object": "list", "data": models, "first_id": known[0], "last_id": known[-1], "has_more": False}


def model_body(name: str) -> Body:
    """One model."""
    openai: Body = {"id": name, "object": "model", "created": 0, "owned_by": "slime"}
    return openai | {
        "type": "model",
        "display_name": name,
        "created_at": "1970-01-01T00:00:00Z",
        "lifecycle": "active",
    }
