"""A program: what a run needs of AWS, on one port: a runtime of AgentCore whose agent is real, and S3 for its results.

    python cloud_server.py          # prints its port, and serves until it is ended

It speaks AWS's wire: signed requests, errors by header or in XML, ARNs in paths. The payload's `play` says what else
happens: `refuse` and `answer` what becomes of the invocation, `result` what is written, and when, `never` that nothing
is.
"""

import asyncio
import json
import re
import time
import traceback
from collections import Counter
from urllib.parse import unquote
from xml.sax.saxutils import escape

from aiohttp import web
from openai import AsyncOpenAI

SCOPE = re.compile(r"AWS4-HMAC-SHA256 Credential=[^/]+/\d{8}/us-west-2/(?P<service>[a-z0-9-]+)/aws4_request, ")
RUNTIME = re.compile(r"/runtimes/(?P<arn>[^/]+)/(?P<what>invocations|stopruntimesession)")
ARN = "arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/my_agent-a1B2c3D4e5"
SESSION = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"
BUCKET = "results"


class CloudServer:
    """All of it."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.sessions: dict[str, asyncio.Task[None]] = {}
        self.refused: Counter[str] = Counter()
        self.log: list[dict[str, object]] = []
        self.most = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.rel_url.raw_path
        if path == "/log":
            return web.json_response({"log": self.log, "most": self.most})
        scope = SCOPE.match(request.headers.get("Authorization", ""))
        service = scope["service"] if scope else "nobody"
        if found := RUNTIME.fullmatch(path):
            if service != "bedrock-agentcore":
                return failed(403, "AccessDeniedException", f"signed for {service}")
            if unquote(found["arn"]) != ARN:
                return failed(404, "ResourceNotFoundException", "no such runtime")
            act = self.invoke if found["what"] == "invocations" else self.stop
            return await act(request, request.headers[SESSION])
        return self.s3(request, path) if service == "s3" else refused_by_s3(403, "AccessDenied")

    async def invoke(self, request: web.Request, session: str) -> web.StreamResponse:
        payload = json.loads(await request.read())
        self.log.append({"what": "invoke", "session": session, "at": time.monotonic(), "payload": payload})
        play = payload.get("play", {})
        refuse = play.get("refuse", {})
        self.refused[session] += 1
        if refuse and self.refused[session] <= refuse.get("times", 1_000):
            return failed(refuse["status"], refuse["code"], refuse.get("message", "not now"))
        rollout = payload["_rollout"]
        key = f"{rollout['exp_id']}/{rollout['input_id']}/{session}.json"
        self.sessions[session] = asyncio.create_task(self.agent(payload, play, key))
        self.most = max(self.most, len(self.sessions))
        await asyncio.sleep(play.get("cold_s", 0))
        place = {"status": "processing", "s3_bucket": rollout["s3_bucket"], "result_key": key}
        return web.Response(text=play.get("answer") or json.dumps(place), content_type="application/json")

    async def agent(self, payload: dict[str, object], play: dict[str, object], key: str) -> None:
        await asyncio.sleep(float(str(play.get("delay_s", 0))))
        if play.get("never"):
            return
        try:
            made = str(play.get("result") or json.dumps(await solved(payload)))
        except Exception as error:
            made = json.dumps({"status_code": 500, "stop_reason": str(error), "traceback": traceback.format_exc()})
        self.objects[key] = made.encode()

    async def stop(self, request: web.Request, session: str) -> web.StreamResponse:
        self.log.append({"what": "stop", "session": session, "at": time.monotonic(), "known": session in self.sessions})
        if (agent := self.sessions.pop(session, None)) is None:
            return failed(404, "ResourceNotFoundException", "no such session")
        agent.cancel()
        return web.json_response({}, headers={SESSION: session})

    def s3(self, request: web.Request, path: str) -> web.StreamResponse:
        bucket, _, key = unquote(path).removeprefix("/").partition("/")
        if bucket == "forbidden":
            return refused_by_s3(403, "AccessDenied")
        if bucket != BUCKET:
            return refused_by_s3(404, "NoSuchBucket")
        if not key:
            return web.Response()
        self.log.append({"what": "look", "key": key, "at": time.monotonic()})
        if key not in self.objects:
            return refused_by_s3(404, "NoSuchKey")
        return web.Response(body=self.objects[key], content_type="application/json")


async def solved(payload: dict[str, object]) -> dict[str, object]:
    """An agent as somebody deploys it: its model is where the payload says."""
    rollout = payload["_rollout"]
    assert isinstance(rollout, dict)
    client = AsyncOpenAI(
        base_url=rollout["base_url"],
        api_key=rollout["api_key"],
        max_retries=0,
        default_headers={"Connection": "close"},  # what is kept open would look like a task that a call has left
    )
    messages: list[dict[str, object]] = [{"role": "user", "content": payload["prompt"]}]
    async with client:
        for turn in range(rollout.get("turns", 1)):
            said = await client.chat.completions.create(
                model=rollout["model_id"],
                messages=messages,  # type: ignore[arg-type]
                **rollout["sampling_params"],
            )
            text = said.choices[0].message.content or ""
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": f"More, {turn}"}]
    is_right = len(text) % 2 if rollout.get("graded") == "by parity" else text == payload["answer"]
    return {"rewards": [0.0, float(is_right)], "messages": messages}


def failed(status: int, code: str, message: str) -> web.Response:
    """As AgentCore fails."""
    return web.json_response({"message": message}, status=status, headers={"x-amzn-ErrorType": code})


def refused_by_s3(status: int, code: str) -> web.Response:
    """As S3 refuses."""
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{escape(code)}</Code><Message>no</Message></Error>'
    return web.Response(text=text, status=status, content_type="application/xml")


async def main() -> None:
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{path:.*}", CloudServer().handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
