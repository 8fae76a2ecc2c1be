"""What clients may send to the gateway, over real sockets: too much, too deep, too slowly, no HTTP."""

import asyncio
import logging
from contextlib import AbstractAsyncContextManager

import aiohttp
import pytest
from serving import There, served
from talker import Talker

from slime_agent_openai.connections import Limits
from slime_agent_openai.gateway import Gateway
from slime_core.data import HfTokenizer
from tests.tables import table

CHAT = {"model": "policy", "messages": [{"role": "user", "content": "What is 17 + 25?"}]}
MESSAGES = {**CHAT, "max_tokens": 100}
RESPONSES = {"model": "policy", "input": "What is 17 + 25?"}
PATHS = {"chat/completions": CHAT, "responses": RESPONSES, "messages": MESSAGES, "completions": {"prompt": "x"}}
QUICK = Limits(body=100_000, body_s=0.3)


def at(tokenizer: HfTokenizer, limits: Limits | None = None, **context: object) -> AbstractAsyncContextManager[There]:
    return served(Talker(tokenizer, lambda text, turn: "42"), gateway=Gateway(limits=limits), **context)


async def refused(answer: aiohttp.ClientResponse) -> tuple[int, str]:
    """Status and code of an error, in the shape of its protocol."""
    body = await answer.json()
    assert answer.headers["x-should-retry"] == "false"
    error = body["error"]
    assert error["message"]
    if "messages" in str(answer.url):
        assert body["type"] == "error"
        return answer.status, error["details"]["error_code"]
    assert set(error) == {"message", "type", "param", "code"}
    return answer.status, error["code"]


async def connected(there: There) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    address = there.url.split("/")[2].split(":")
    return await asyncio.open_connection(address[0], int(address[1]))


async def test_a_text_that_cannot_fit_is_refused_by_its_bytes(
    tokenizer: HfTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = list[int]()
    encode = HfTokenizer.encode

    def noted(self: HfTokenizer, text: str) -> list[int]:
        encoded.append(len(text))
        return encode(self, text)

    monkeypatch.setattr(HfTokenizer, "encode", noted)
    assert tokenizer.longest_token == len(b"</tool_response>")
    async with at(tokenizer, max_context=1000) as there:
        text = "x " * 100_000
        for path, body in PATHS.items():
            field = next(name for name in ("messages", "input", "prompt") if name in body)
            long = {**body, field: [{"role": "user", "content": text}] if field == "messages" else text}
            async with there.http.post(f"{there.url}/v1/{path}", json=long) as answer:
                assert await refused(answer) == (400, "context_length_exceeded"), path
        status, _ = await there.post("chat/completions", CHAT)
        assert status == 200
    assert max(encoded) < 16 * 1000


@table(
    "body",
    [b"[" * 100_000, b'{"messages": ' + b"[" * 90_000, b'{"messages": [' + b'{"a":' * 15_000 + b"1" + b"}" * 15_000],
)
async def test_a_body_nested_for_ever_is_a_bad_request(tokenizer: HfTokenizer, body: bytes) -> None:
    async with at(tokenizer) as there:
        for path in (*PATHS, "messages/count_tokens"):
            async with there.http.post(f"{there.url}/v1/{path}", data=body) as answer:
                assert await refused(answer) == (400, "invalid_json"), path


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(tokenizer: HfTokenizer) -> None:
    async def parts() -> object:
        for _ in range(100):
            yield b" " * 10_000  # type: ignore[misc]

    async with at(tokenizer, QUICK) as there:
        for path in ("chat/completions", "messages"):
            for data in (b" " * 1_000_000, parts()):
                async with there.http.post(f"{there.url}/v1/{path}", data=data) as answer:
                    assert await refused(answer) == (413, "request_too_large")


async def test_a_body_that_does_not_come_is_not_waited_for(tokenizer: HfTokenizer) -> None:
    async with at(tokenizer, QUICK) as there:
        reader, writer = await connected(there)
        path = there.url.partition("/s/")[2]
        writer.write(f"POST /s/{path}/v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{{".encode())
        told = (await reader.read()).decode()
        assert told.startswith("HTTP/1.1 408")
        assert '"request_timeout"' in told
        writer.close()


async def test_each_kind_of_refusal_is_logged_once(tokenizer: HfTokenizer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with at(tokenizer, QUICK) as there:
        for _ in range(5):
            for data in (b"{", b"[" * 90_000, b" " * 200_000):
                async with there.http.post(f"{there.url}/v1/chat/completions", data=data) as answer:
                    await answer.read()
            async with there.http.post(f"{there.url.partition('/s/')[0]}/v1/messages", data=b"{}") as answer:
                assert answer.status == 401
            reader, writer = await connected(there)
            writer.write(b"GET / HTTP/1.1\r\nno header\r\n\r\n")
            assert b"400" in await reader.read()
            writer.close()
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    kinds = sorted(line.partition("refused, ")[2].partition(":")[0] for line in lines)
    assert kinds == ["invalid_api_key", "invalid_json", "not HTTP", "request_too_large"]
    assert not [record for record in caplog.records if record.exc_info]
