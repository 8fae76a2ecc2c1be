"""ResponsesWire: a reply as one of OpenAI's responses, or the events that tell it.

Every stretch of the reply is an item, whose id is the same in all events and in the body.

Example:

    wire = ResponsesWire("resp_1", {"model": "policy"}, new_id, streams=True)
    wire.begin(12)          # response.created, response.in_progress
    wire.add(TextDelta("Hi"))     # response.output_item.added, .content_part.added, .output_text.delta
    wire.end(reply)         # ..., response.output_item.done, response.completed
"""

import time
from collections.abc import Iterator, Mapping

from slime_agent_openai.errors import ApiError
from slime_agent_openai.reply import Delta, Finish, Reply
from slime_agent_openai.wires.pieces import Kind, Moment, Piece, Pieces, Step
from slime_agent_openai.wires.wire import Body, NewId, event
from slime_core.sample import Json

PREFIXES = {Kind.REASONING: "rs", Kind.TEXT: "msg", Kind.CALL: "fc"}


class ResponsesWire:
    """Writes one reply."""

    def __init__(
        self,
        name: str,
        echoed: Body,
        new_id: NewId,
        *,
        streams: bool,
        namespaces: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        """Nothing is written yet.

        Args:
            name: id of the response.
            echoed: what its body repeats of the request.
            new_id: makes ids of its items.
            streams: whether the request asks for a stream.
            namespaces: of a tool's name that the model sees: its namespace, and its name therein.
        """
        self._base: Body = {
            "id": name,
            "object": "response",
            "created_at": int(time.time()),
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "parallel_tool_calls": True,
            "text": {"format": {"type": "text"}},
            "tools": [],
            "usage": None,
            **echoed,
        }
        self._streams, self._namespaces = streams, namespaces or {}
        self._pieces = Pieces(new_id, PREFIXES)
        self._sent = 0

    @property
    def streams(self) -> bool:
        """Whether the request asks for a stream."""
        return self._streams

    def whole(self, reply: Reply) -> Body:
        """The body, of a stream too: with the ids of its events."""
        pieces = self._pieces.of(reply.message)
        output = [self._item(piece, "completed") for piece in pieces[:-1]]
        output.append(self._item(pieces[-1], _status(reply)))
        more: Body = {"incomplete_details": {"reason": "max_output_tokens"}} if _status(reply) == "incomplete" else {}
        return {**self._base, **more, "status": _status(reply), "output": [*output], "usage": _usage(reply)}

    def begin(self, prompt_tokens: int) -> Iterator[bytes]:
        """The response is there."""
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", {"response": {**self._base, "status": "in_progress", "output": []}})

    def add(self, delta: Delta) -> Iterator[bytes]:
        """Items begin, grow and end."""
        for step in self._pieces.add(delta):
            yield from self._told(step, "completed")

    def end(self, reply: Reply) -> Iterator[bytes]:
        """The last item ends, and with it the response."""
        steps = list(self._pieces.end())
        for step in steps:
            yield from self._told(step, _status(reply) if step.piece is steps[-1].piece else "completed")
        yield self._event(f"response.{_status(reply)}", {"response": self.whole(reply)})

    def fail(self, error: ApiError) -> Iterator[bytes]:
        """An error, and the response as a failed one."""
        yield self._event("error", {"code": error.code, "message": error.message, "param": error.param})
        output: list[Json] = [self._item(piece, "incomplete") for piece in self._pieces.told]
        told: Body = {"code": "server_error", "message": error.message}
        failed: Body = {**self._base, "status": "failed", "error": told, "output": output}
        yield self._event("response.failed", {"response": failed})

    def _told(self, step: Step, status: str) -> Iterator[bytes]:
        """Events of a step; `status` is that of an item that ends."""
        piece = step.piece
        at: Body = {"item_id": piece.id, "output_index": piece.index}
        within: Body = at if piece.kind is Kind.CALL else {**at, "content_index": 0}
        match step.moment:
            case Moment.BEGUN:
                begun = {**self._item(piece, "in_progress"), **({} if piece.kind is Kind.CALL else {"content": []})}
                yield self._event("response.output_item.added", {"output_index": piece.index, "item": begun})
                if piece.kind is not Kind.CALL:
                    yield self._event("response.content_part.added", {**within, "part": _part(piece.kind, "")})
            case Moment.MORE:
                more: Body = {"delta": step.text, **({"logprobs": []} if piece.kind is Kind.TEXT else {})}
                yield self._event(f"response.{_TOLD_AS[piece.kind]}.delta", {**within, **more})
            case Moment.ENDED:
                yield from self._ended(piece, within, status)

    def _ended(self, piece: Piece, within: Body, status: str) -> Iterator[bytes]:
        item = self._item(piece, status)
        kind = f"response.{_TOLD_AS[piece.kind]}.done"
        match piece.kind:
            case Kind.REASONING:
                yield self._event(kind, {**within, "text": piece.text})
            case Kind.TEXT:
                yield self._event(kind, {**within, "text": piece.text, "logprobs": []})
            case Kind.CALL:
                yield self._event(kind, {**within, "arguments": piece.text, "name": item["name"]})
        if piece.kind is not Kind.CALL:
            yield self._event("response.content_part.done", {**within, "part": _part(piece.kind, piece.text)})
        yield self._event("response.output_item.done", {"output_index": piece.index, "item": item})

    def _item(self, piece: Piece, status: str) -> Body:
        if piece.call is not None:
            space, name = self._namespaces.get(piece.call.name, ("", piece.call.name))
            made: Body = {"type": "function_call", "id": piece.id, "call_id": piece.call.id, "name": name}
            return {**made, **({"namespace": space} if space else {}), "arguments": piece.text, "status": status}
        if piece.kind is Kind.TEXT:
            head: Body = {"type": "message", "id": piece.id, "status": status, "role": "assistant"}
            return {**head, "content": [_part(piece.kind, piece.text)]}
        thoughts = _part(piece.kind, piece.text)
        return {"type": "reasoning", "id": piece.id, "status": status, "summary": [], "content": [thoughts]}

    def _event(self, kind: str, told: Body) -> bytes:
        number, self._sent = self._sent, self._sent + 1
        return event({"type": kind, "sequence_number": number, **told}, kind)


_TOLD_AS = {Kind.REASONING: "reasoning_text", Kind.TEXT: "output_text", Kind.CALL: "function_call_arguments"}


def _part(kind: Kind, text: str) -> Body:
    if kind is Kind.REASONING:
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _status(reply: Reply) -> str:
    return "incomplete" if reply.finish is Finish.LENGTH else "completed"


def _usage(reply: Reply) -> Body:
    made = len(reply.tokens)
    return {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": reply.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
        "total_tokens": reply.prompt_tokens + made,
    }
