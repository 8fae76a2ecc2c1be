"""Wire: writes one request's reply, whole or as server-sent events; also the bodies of errors and model lists.

The function that reads a request's body makes its wire. A wire does no I/O and has no session. Consume what a method
yields before you call the next.

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
"""Makes a unique id that cannot be guessed: `new_id("call")` is "call_..."."""
Body: TypeAlias = dict[str, Json]


class Wire(Protocol):
    """Writes one reply."""

    @property
    def streams(self) -> bool: ...

    def whole(self, reply: Reply) -> Body:
        """The body of a complete reply. If the reply is streamed, the body has the ids of the stream's events."""
        ...

    def begin(self, prompt_tokens: int) -> Iterator[bytes]: ...

    def add(self, delta: Delta) -> Iterator[bytes]: ...

    def end(self, reply: Reply) -> Iterator[bytes]:
        """The last events; a stream without them has no answer."""
        ...

    def fail(self, error: ApiError) -> Iterator[bytes]:
        """The last events of a broken stream: an error, which clients do not mistake for a regular end."""
        ...


as_json = json.JSONEncoder(separators=(",", ":")).encode  # JSON in ASCII, without spaces


def event(data: Json, name: str | None = None) -> bytes:
    """One server-sent event (HTML standard, section 9.2), in ASCII: some clients split lines at U+2028."""
    text = data if isinstance(data, str) else as_json(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def openai_error(error: ApiError) -> Body:
    """The error in the format of OpenAI's clients."""
    return {"error": {"message": error.message, "type": error.kind, "param": error.param, "code": error.code}}


def anthropic_error(error: ApiError) -> Body:
    """The error in the format of Anthropic's clients; some read `details.error_code`, as for refused threads."""
    details: dict[str, Json] = {"error_code": error.code}
    if error.param is not None:
        details["param"] = error.param
    return {"type": "error", "error": {"type": error.kind, "message": error.message, "details": details}}


MODEL = "policy"  # Default name of the model


def models_body(*names: str) -> Body:
    """The list of models; without names, a list of the default one."""
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
