import asyncio
import json
import logging
from contextlib import AbstractAsyncContextManager

import aiohttp
import pytest
from aiohttp import web
from serving import There, free_port, served
from talker import Talker
from yarl import URL

from slime_agent_openai import exchange
from slime_agent_openai.bridge import Bridge
from slime_agent_openai.connections import Limits
from slime_agent_openai.gateway import Address, Gateway
from slime_agent_openai.parsers.families import HERMES
from slime_agent_openai.session import Session, SessionLimits
from slime_core.data import HfTokenizer
from slime_core.errors import ConfigError
from slime_core.roles import FinishReason
from tests.tables import table

ASKED = [{"role": "user", "content": "What is 17 + 25?"}]
CHAT, MESSAGES = {"messages": ASKED}, {"max_tokens": 100, "messages": ASKED}
RESPONSES = {"input": "What is 17 + 25?"}
EACH = [("chat/completions", CHAT), ("responses", RESPONSES), ("messages", MESSAGES)]
BODIES = {**dict(EACH), "completions": {"prompt": "x"}}


@pytest.fixture
def there(talker: Talker) -> AbstractAsyncContextManager[There]:
    return served(talker)


def said(body: dict[str, object]) -> str:
    return str(body["choices"][0]["message"]["content"])  # type: ignore[index]


async def events(answer: aiohttp.ClientResponse) -> list[str]:
    return [line.removeprefix("data: ") for line in (await answer.text()).splitlines() if line.startswith("data: ")]


class TestKeys:
    """Whose request it is."""

    async def test_session_key_in_path_or_header(self, there: There) -> None:
        status, body = await there.post("chat/completions", CHAT)
        assert (status, said(body)) == (200, "Answer 0")
        async with there.http.head(there.url) as answer:
            assert answer.status == 200
        root, _, key = there.url.partition("/s/")
        for headers in ({"Authorization": f"Bearer {key}"}, {"x-api-key": key}):
            async with there.http.post(f"{root}/v1/chat/completions", json=CHAT, headers=headers) as answer:
                assert answer.status == 200

    async def test_request_to_a_closed_session_is_refused(self, talker: Talker) -> None:
        gateway = Gateway()
        await gateway.start()
        talker.hold = asyncio.Event()
        session = Session(talker.context(), SessionLimits(), Bridge(talker.tokenizer), HERMES)
        async with aiohttp.ClientSession() as http:
            async with gateway.open_session(session) as url:
                asking = asyncio.create_task(http.post(f"{url}/v1/chat/completions", json=CHAT).__aenter__())
                await talker.waiting.wait()
            answer = await asking  # its session ended before it was answered
            assert (answer.status, (await answer.json())["error"]["code"]) == (400, "session_closed")
            for path in ("chat/completions", "messages"):
                async with http.post(f"{url}/v1/{path}", json=CHAT) as answer:
                    assert (answer.status, code_of((await answer.json())["error"])) == (400, "session_closed")
                    assert answer.headers["x-should-retry"] == "false"
        await gateway.close()


async def test_first_chunk_is_streamed_early(there: There, talker: Talker) -> None:
    talker.hold = asyncio.Event()
    async with there.http.post(f"{there.url}/v1/chat/completions", json=CHAT | {"stream": True}) as answer:
        line = b""
        while b'"content":"' not in line or b'"content":""' in line:
            line = await answer.content.readline()
        assert talker.log == []
        talker.hold.set()
        assert (await events(answer))[-1] == "[DONE]"


class TestAgain:
    """A client whose connection broke sends its request again."""

    async def test_client_disconnect_leaves_nothing(self, talker: Talker) -> None:
        async with served(talker, limits=SessionLimits(max_turns=1)) as there:
            talker.hold = asyncio.Event()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(there.post("chat/completions", CHAT), 0.2)
            await talker.gave_up.wait()
            assert list(there.session.forest.chains()) == []
            talker.hold = None
            status, body = await there.post("chat/completions", CHAT, **{"x-stainless-retry-count": "1"})
            assert (status, said(body), talker.cancelled) == (200, "Answer 0", 1)


def code_of(error: dict[str, object]) -> object:
    """Code of an error of either protocol."""
    return error["details"]["error_code"] if "details" in error else error["code"]  # type: ignore[index]


@table("path, body", EACH)
async def test_idle_stream_gets_keepalives(
    tokenizer: HfTokenizer, path: str, body: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    talker = Talker(tokenizer, lambda text, turn: f"Answer {turn}")
    monkeypatch.setattr(exchange, "KEEPALIVE_S", 0.02)
    async with served(talker) as there:
        talker.hold = asyncio.Event()
        async with there.http.post(f"{there.url}/v1/{path}", json=body | {"stream": True}) as answer:
            lines = []
            while lines.count(b": keepalive\n") < 3:
                lines.append(await answer.content.readline())
            talker.hold.set()
            rest = (await answer.read()).decode()
        assert "keepalive" not in rest.split("\n\n")[-2]
        assert rest.split("\n\n")[-2].endswith(("[DONE]", "}"))
        assert len(talker.log) == 1


@table("path, body", EACH)
@table("stream", [False, True])
@table(
    "context, limits, code",
    [
        ({"max_context": 8}, SessionLimits(), "context_length_exceeded"),
        ({"max_new_tokens": 0}, SessionLimits(), "context_length_exceeded"),
        ({}, SessionLimits(max_turns=0), "turn_limit"),
        ({"max_turns": 0}, SessionLimits(), "turn_limit"),
    ],
)
async def test_session_limits_are_enforced(
    talker: Talker,
    path: str,
    body: dict[str, object],
    stream: bool,
    context: dict[str, int],
    limits: SessionLimits,
    code: str,
) -> None:
    async with served(talker, limits=limits, **context) as there:
        async with there.http.post(f"{there.url}/v1/{path}", json=body | {"stream": stream}) as answer:
            error = (await answer.json())["error"]
            assert (answer.status, answer.headers["x-should-retry"]) == (400, "false")
        assert (error["type"], code_of(error)) == ("invalid_request_error", code)
        assert error["message"].startswith("prompt is too long") == (code == "context_length_exceeded")
        assert ("maximum context length is 8 tokens" in error["message"]) == ("max_context" in context)
        assert there.session.exceeded_limit


@table("stream", [False, True])
async def test_interrupted_reply_is_an_error(talker: Talker, stream: bool) -> None:
    async with served(talker) as there:
        talker.finish = FinishReason.ABORT
        async with there.http.post(f"{there.url}/v1/chat/completions", json=CHAT | {"stream": stream}) as answer:
            if stream:
                told = await events(answer)
                assert json.loads(told[-1])["error"]["code"] == "interrupted"
            else:
                assert (answer.status, (await answer.json())["error"]["code"]) == (503, "interrupted")
                assert answer.headers["x-should-retry"] == "false"
        assert there.session.interrupted.is_set()
        assert list(there.session.forest.chains()) == []


async def test_count_tokens_takes_no_turn(there: There, talker: Talker) -> None:
    _, count = await there.post("messages/count_tokens", MESSAGES)
    _, reply = await there.post("messages", MESSAGES)
    assert count == {"input_tokens": reply["usage"]["input_tokens"]}  # type: ignore[index]
    assert len(talker.log) == 1


async def test_stored_response_can_be_fetched_and_continued(there: There, talker: Talker) -> None:
    _, count = await there.post("responses/input_tokens", RESPONSES)
    _, first = await there.post("responses", RESPONSES)
    assert count["input_tokens"] == first["usage"]["input_tokens"]  # type: ignore[index]
    assert await there.get(f"responses/{first['id']}") == (200, first)
    assert (await there.get("responses/resp_1"))[0] == 404
    hi, sure = {"role": "user", "content": RESPONSES["input"]}, {"role": "user", "content": "Sure?"}
    named = {"type": "item_reference", "id": first["output"][0]["id"]}  # type: ignore[index]
    for asked in ({"input": "Sure?", "previous_response_id": first["id"]}, {"input": [hi, named, sure]}):
        assert (await there.post("responses", asked))[0] == 200
        seen = (*talker.log[0].prompt, *talker.log[0].output)
        assert talker.log[-1].prompt[: len(seen)] == seen
    assert there.session.forest.counts.forks == 0


async def test_sub_agent_header_is_read(talker: Talker) -> None:
    async with served(talker, gateway=Gateway(subagent_headers=["x-my-agent"])) as there:
        await there.post("chat/completions", CHAT)
        await there.post("chat/completions", CHAT, **{"x-claude-code-agent-id": "agent-7"})
        await there.post("chat/completions", CHAT, **{"x-my-agent": "agent-8"})
        assert [node.agent for chain in there.session.forest.chains() for node, _ in chain[-1:]] == [
            "",
            "agent-7",
            "agent-8",
        ]


def test_public_url_is_given_to_remote_agents() -> None:
    assert Gateway(Address("0.0.0.0", 8000, "http://10.0.0.7:8000/")).url == "http://10.0.0.7:8000"


async def test_taken_port_is_a_config_error(there: There) -> None:
    port = int(there.url.split(":")[2].split("/")[0])
    with pytest.raises(ConfigError, match=rf"127\.0\.0\.1, port {port}: .*address already in use.* port = 0 takes"):
        await Gateway(Address(port=port)).start()


def test_cancelled_close_drops_connections() -> None:
    async def play() -> bytes:
        asked = asyncio.Event()

        async def never(request: web.Request) -> web.Response:
            asked.set()
            await asyncio.sleep(60)
            return web.Response()

        gateway = Gateway(extra_routes=[web.get("/never", never)])
        await gateway.start()
        address = URL(gateway.url)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET /never HTTP/1.1\r\nHost: here\r\n\r\n")
        await asked.wait()
        closing = asyncio.create_task(gateway.close())
        for _ in range(5):
            await asyncio.sleep(0)  # until it waits for the answer
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        try:
            return await asyncio.wait_for(reader.read(), 10)
        finally:
            writer.close()

    assert asyncio.run(play()) == b"", "the connection has ended, without an answer"


@table("turns", range(8))
async def test_cancelled_start_stops_listening(turns: int) -> None:
    port = free_port()
    gateway = Gateway(Address(port=port))
    starting = asyncio.create_task(gateway.start())
    for _ in range(turns):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait({starting})
    await gateway.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


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


async def test_oversized_prompt_is_refused_before_tokenizing(
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
        for path, body in BODIES.items():
            field = next(name for name in ("messages", "input", "prompt") if name in body)
            long = {**body, field: [{"role": "user", "content": text}] if field == "messages" else text}
            async with there.http.post(f"{there.url}/v1/{path}", json=long) as answer:
                assert await refused(answer) == (400, "context_length_exceeded"), path
        status, _ = await there.post("chat/completions", CHAT)
        assert status == 200
    assert max(encoded) < 16 * 1000


NESTED = [b"[" * 90_000, b'{"messages": ' + b"[" * 90_000, b'{"messages": [' + b'{"a":' * 15_000 + b"}" * 15_000]


@table("path", [*BODIES, "messages/count_tokens"])
async def test_invalid_body_is_refused(tokenizer: HfTokenizer, path: str) -> None:
    async def parts() -> object:
        for _ in range(100):
            yield b" " * 10_000  # type: ignore[misc]

    async with at(tokenizer, QUICK) as there:
        for data in (b"{", b"[]", *NESTED):
            async with there.http.post(f"{there.url}/v1/{path}", data=data) as answer:
                assert await refused(answer) == (400, "invalid_json"), data[:20]
        for data in (b" " * 1_000_000, parts()):
            async with there.http.post(f"{there.url}/v1/{path}", data=data) as answer:
                assert await refused(answer) == (413, "request_too_large")
        async with there.http.post(f"{there.url}/v1/chat/generations", json={}) as answer:
            assert await refused(answer) == (404, "not_found")


async def test_slow_body_times_out(tokenizer: HfTokenizer) -> None:
    async with at(tokenizer, QUICK) as there:
        reader, writer = await connected(there)
        path = there.url.partition("/s/")[2]
        writer.write(f"POST /s/{path}/v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{{".encode())
        told = (await reader.read()).decode()
        assert told.startswith("HTTP/1.1 408")
        assert '"request_timeout"' in told
        writer.close()


async def test_refusals_are_logged_once_per_kind(tokenizer: HfTokenizer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with at(tokenizer, QUICK) as there:
        for _ in range(5):
            for data in (b"{", b"[" * 90_000, b" " * 200_000):
                async with there.http.post(f"{there.url}/v1/chat/completions", data=data) as answer:
                    await answer.read()
            async with there.http.post(f"{there.url.partition('/s/')[0]}/v1/messages", data=b"{}") as answer:
                assert answer.status == 401
            async with there.http.post(
                f"{there.url}/v1/chat/completions", data=b"{}", headers={"Content-Encoding": "gzip"}
            ) as answer:
                assert await refused(answer) == (400, "invalid_body")
            reader, writer = await connected(there)
            writer.write(b"GET / HTTP/1.1\r\nno header\r\n\r\n")
            assert b"400" in await reader.read()
            writer.close()
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    kinds = sorted(line.partition("request, ")[2].partition(":")[0] for line in lines)
    assert kinds == ["invalid_api_key", "invalid_body", "invalid_json", "not HTTP", "request_too_large"]
    assert not [record for record in caplog.records if record.exc_info]
