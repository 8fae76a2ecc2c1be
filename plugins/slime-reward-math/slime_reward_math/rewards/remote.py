"""The reward `remote_rm`: posts slime's payload to a server, with bounded retries, but none for a bad request.

Example:

    [reward]
    use = "remote_rm"
    [reward.remote_rm]
    rm_url = "http://127.0.0.1:9000/score"

The payload is `{"prompt", "response", "label"}`; the answer is a number, or an object with one under `reward_key`.
"""

import asyncio
import json
import random
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from math import isfinite

from slime_core import Sample, Score, Unscored, Verdict
from slime_core.roles import RewardContext
from slime_core.sample import Json
from slime_reward_math.plugin import RemoteSettings
from slime_reward_math.rewards.answers import boxed

CONNECTIONS = 64
"""Concurrent requests, as in slime."""
MAX_ANSWER_BYTES = 1_000_000
"""Maximum size of a server's answer."""
MAX_BACKOFF_S = 30.0
"""Maximum seconds between two tries."""


class Refused(Exception):
    """The server rejected the request, so that a retry would not help."""


class Remote:
    """Posts samples to a server; requests wait in threads, so that they do not block the event loop."""

    def __init__(self, settings: RemoteSettings, within_box: bool = False) -> None:
        self._settings, self._within_box = settings, within_box
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="remote_rm")

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """Return the server's score, or why there is none."""
        if not self._settings.rm_url:
            return Unscored("remote_rm has no address", detail="set rm_url, for instance http://127.0.0.1:9000/score")
        prompt: Json = sample.prompt if isinstance(sample.prompt, str) else [dict(each) for each in sample.prompt]
        response = boxed(sample) if self._within_box else sample.response
        payload = json.dumps({"prompt": prompt, "response": response, "label": sample.label}).encode("utf-8", "replace")
        jitter = random.Random(ctx.seed)
        failure = ""
        for attempt in range(self._settings.max_retries + 1):
            if attempt:
                await asyncio.sleep(min(2.0 ** (attempt - 1), MAX_BACKOFF_S) * (0.5 + jitter.random()))
            try:
                loop = asyncio.get_running_loop()
                answer = await loop.run_in_executor(self._threads, _post, self._settings, payload)
            except Refused as error:
                return Unscored("remote_rm was refused", detail=str(error))
            except (OSError, TimeoutError) as error:
                failure = str(error)
            else:
                return _verdict(answer, self._settings.reward_key)
        return Unscored("remote_rm did not answer", retryable=True, detail=failure)


def _post(settings: RemoteSettings, payload: bytes) -> bytes:
    request = urllib.request.Request(settings.rm_url, payload, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=settings.timeout_s) as response:
            return bytes(response.read(MAX_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        if 400 <= error.code < 500 and error.code not in (408, 429):
            raise Refused(f"{settings.rm_url} answered {error.code} {error.reason}") from error
        raise


def _verdict(answer: bytes, key: str) -> Verdict:
    try:
        found = json.loads(answer)
    except ValueError:
        return Unscored("remote_rm answered no JSON", detail=repr(answer[:200]))
    fields = found if isinstance(found, dict) else {key: found}
    numbers = {name: float(value) for name, value in fields.items() if isinstance(value, int | float)}
    if not all(map(isfinite, numbers.values())) or key not in numbers:
        return Unscored(
            "remote_rm answered no score", detail=f"expected a number, or one under {key!r}: {answer[:200]!r}"
        )
    return Score(numbers.pop(key), numbers)
