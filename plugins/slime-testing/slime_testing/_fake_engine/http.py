"""HTTP/1.1 server of the fake engine: connections, requests and replies, and the bodies of its endpoints."""

import asyncio
import contextlib
import io
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import parse_headers
from typing import Literal, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"
TEXT = "text/plain; charset=utf-8"

Parts: TypeAlias = AsyncGenerator[bytes, None]


class Hangup(Exception):
    """Raised by a handler or while a reply is sent, to drop the connection at once."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    gone: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes | Parts
    content_type: str = JSON
    length: int | None = None


Handler: TypeAlias = Callable[[Request], Awaitable[Reply]]


async def serve_connection(handle: Handler, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while (request := await _read(reader, writer)) is not None:
            await _write(writer, await handle(request))
            if request.headers.get("connection", "").lower() == "close":
                break
    except (Hangup, OSError, asyncio.IncompleteReadError):
        writer.transport.abort()
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | None:
    """The next request; None if the client has closed the connection.

    Raises:
        Hangup: the client uses another protocol.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    line, _, rest = head.partition(b"\r\n")
    method, target, version = (*line.decode("latin-1").split(" "), "", "")[:3]
    if not version.startswith("HTTP/1."):
        raise Hangup  # a router uses HTTP/2 to detect a gRPC server
    headers = {name.lower(): value for name, value in parse_headers(io.BytesIO(rest)).items()}
    url = urlsplit(target)
    return Request(
        method,
        url.path,
        dict(parse_qsl(url.query)),
        headers,
        await _read_body(reader, headers),
        lambda: reader.at_eof() or writer.is_closing(),
    )


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", "0")))
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":  # trailers
        pass
    return body


async def _write(writer: asyncio.StreamWriter, reply: Reply) -> None:
    length = len(reply.body) if isinstance(reply.body, bytes) else reply.length
    framing = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    status = f"{reply.status} {HTTPStatus(reply.status).phrase}"
    writer.write(f"HTTP/1.1 {status}\r\ncontent-type: {reply.content_type}\r\n{framing}\r\n\r\n".encode())
    if isinstance(reply.body, bytes):
        writer.write(reply.body)
    else:
        await _write_parts(writer, reply.body, chunked=length is None)
    await writer.drain()


async def _write_parts(writer: asyncio.StreamWriter, body: Parts, *, chunked: bool) -> None:
    async with contextlib.aclosing(body) as parts:
        async for part in parts:
            if part:  # an empty chunk would end the reply
                writer.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
                await writer.drain()
    if chunked:
        writer.write(b"0\r\n\r\n")


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Body(BaseModel):
    model_config = ConfigDict(frozen=True)


BodyT = TypeVar("BodyT", bound=Body)


class Sampling(Body):
    """`sampling_params`: fields that the fake engine applies, then fields that it accepts and ignores."""

    model_config = ConfigDict(extra="forbid")

    max_new_tokens: int = Field(128, ge=0)
    min_new_tokens: int = Field(0, ge=0)
    temperature: float = Field(1.0, ge=0)
    sampling_seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    no_stop_trim: bool = False

    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = -1
    min_p: float = Field(0.0, ge=0, le=1)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    repetition_penalty: float = Field(1.0, gt=0, le=2)
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    stop_regex: str | list[str] | None = None
    stream_interval: int | None = None
    logit_bias: dict[str, float] | None = None
    json_schema: str | None = None
    regex: str | None = None
    ebnf: str | None = None
    structural_tag: str | None = None
    custom_params: dict[str, JsonValue] | None = None


class GenerateBody(Body):
    rid: str | None = None
    input_ids: list[int] = Field(min_length=1)
    sampling_params: Sampling = Sampling()
    return_logprob: bool = False
    logprob_start_len: int = -1
    return_sampling_mask: bool = False
    return_routed_experts: bool = False
    stream: bool = False


class AbortBody(Body):
    rid: str = ""
    abort_all: bool = False
    abort_message: str | None = None


class PauseBody(Body):
    mode: str = Field("abort", pattern="^(abort|retract|in_place)$")


class DiskBody(Body):
    model_path: str
    weight_version: str | None = None
    abort_all_requests: bool = False
    flush_cache: bool = True


class MemoryBody(Body):
    """Body of POST /release_memory_occupation and /resume_memory_occupation; without tags, all memory."""

    tags: list[Literal["weights", "kv_cache", "cuda_graph"]] | None = None

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(self.tags or ("weights", "kv_cache", "cuda_graph"))


class VersionBody(Body):
    new_version: str
    abort_all_requests: bool = True


def parse(kind: type[BodyT], request: Request) -> BodyT:
    """The validated body of a request; an empty body has the defaults.

    Raises:
        Refused: it is not JSON, or has invalid fields.
    """
    try:
        return kind.model_validate_json(request.body or b"{}")
    except ValidationError as error:
        errors = (f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in error.errors())
        raise Refused(400, "; ".join(errors)) from None
