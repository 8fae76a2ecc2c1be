"""Names that functions import from slime: `Sample`, a filter's output, HTTP helpers, tokenizer and default generate.

A sample is the core's with slime's nested Status and methods; functions may set further attributes. The HTTP helpers
retry only transient errors. slime's helper retries even a 400, sixty times.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, cast

import aiohttp

from slime_compat.function import Call, current_call
from slime_compat.wire import answer_generate
from slime_core import Sample as CoreSample
from slime_core import Status
from slime_core.roles import Tokenizer
from slime_core.sample import Json, Message, scalar_reward


@dataclass
class DynamicFilterOutput:
    """Whether a group is kept."""

    keep: bool
    reason: str | None = None
    keep_when_insufficient: bool = False
    """Whether to train on a rejected group if the rollout has too few groups."""


_NAMES = tuple(item.name for item in fields(CoreSample))
_STATUS_OF_FINISH = {"length": Status.TRUNCATED, "abort": Status.ABORTED, "stop": Status.COMPLETED}


class Sample(CoreSample):
    """A sample with slime's methods; further attributes exist only on this object."""

    Status: ClassVar[type[Status]] = Status

    @classmethod
    def of(cls, sample: CoreSample) -> "Sample":
        """The same sample, sharing its values."""
        return cls(**{name: getattr(sample, name) for name in _NAMES})

    def to_core(self) -> CoreSample:
        """The core's sample; a missing weight version is filled in from the sample's engine calls."""
        call = current_call()
        if not self.weight_versions and call is not None:
            self.weight_versions = sorted(call.versions)
        return CoreSample(**{name: getattr(self, name) for name in _NAMES})

    def append_response_tokens(  # type: ignore[override]  # slime's own signature
        self,
        args: object = None,
        *,
        tokens: Sequence[int],
        log_probs: Sequence[float] | None = None,
        trainable: bool = True,
        meta_info: Mapping[str, Json] | None = None,
        text: str | None = None,
        update_terminal_info: bool = True,
    ) -> None:
        """Append tokens, and read status and weight version from SGLang's `meta_info`, as slime does."""
        info = meta_info or {}
        version = str(info.get("weight_version") or current_call_version())
        super().append_response_tokens(
            tokens=list(tokens),
            log_probs=list(log_probs) if log_probs is not None else None,
            trainable=trainable,
            text=text or "",
            weight_version=version if trainable else None,
        )
        finish = info.get("finish_reason")
        if update_terminal_info and isinstance(finish, dict):
            self.status = _STATUS_OF_FINISH.get(str(finish.get("type")), self.status)

    def get_reward_value(self, args: object) -> float:
        """The reward, or its entry at `args.reward_key`."""
        key = getattr(args, "reward_key", None)
        if key and isinstance(self.reward, dict):
            return self.reward[key]
        return scalar_reward(self)


def current_call_version() -> str:
    """Weight version of the newest engine call of the current generation; "0" outside of a generation."""
    call = current_call()
    return max(call.versions, key=int) if call is not None and call.versions else "0"


def to_core(sample: CoreSample) -> CoreSample:
    """The core's sample for a sample that a function returned."""
    return sample.to_core() if isinstance(sample, Sample) else sample


FIRST_CLIENT_ERROR, FIRST_SERVER_ERROR = 400, 500


async def post(
    url: str, payload: Mapping[str, Json], max_retries: int = 60, headers: Mapping[str, str] | None = None
) -> Json:
    """POST JSON and return the JSON answer.

    Raises:
        RuntimeError: the server rejects the request (4xx), or still fails after `max_retries` retries.
    """
    return await _request("POST", url, payload, max_retries, headers)


async def get(url: str) -> Json:
    """GET JSON.

    Raises:
        RuntimeError: the server rejects the request or fails.
    """
    return await _request("GET", url, None, 0, None)


async def _request(
    method: str, url: str, payload: Mapping[str, Json] | None, max_retries: int, headers: Mapping[str, str] | None
) -> Json:
    for attempt in range(max_retries + 1):
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.request(method, url, json=payload, headers=headers) as response,
            ):
                if response.status < FIRST_CLIENT_ERROR:
                    return cast(Json, await response.json(content_type=None))
                problem = f"{method} {url} answered {response.status}: {await response.text()}"
                refused = response.status < FIRST_SERVER_ERROR
        except aiohttp.ClientError as error:
            problem, refused = f"{method} {url}: {error}", False
        if refused or attempt == max_retries:
            break
        await asyncio.sleep(1.0)
    raise RuntimeError(problem)


class TokenizerView:
    """The policy's tokenizer with the calls that slime's functions make."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Wrap the core's tokenizer."""
        self._tokenizer = tokenizer

    def __call__(self, text: str, add_special_tokens: bool = False) -> dict[str, list[int]]:
        """`{"input_ids": ids}`."""
        return {"input_ids": self.encode(text, add_special_tokens)}

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Ids of a text.

        Raises:
            ValueError: `add_special_tokens` is set.
        """
        if add_special_tokens:
            raise ValueError(
                "add_special_tokens = True is not supported: slime never adds special tokens. Leave it out"
            )
        return self._tokenizer.encode(text)

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of ids, without special tokens."""
        return self._tokenizer.decode(tokens)

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tools: Json = None,
        tokenize: bool = False,
        add_generation_prompt: bool = True,
        **kwargs: Json,
    ) -> str | list[int]:
        """The messages as prompt text, or as its ids."""
        text = self._tokenizer.apply_chat_template(messages, tools, kwargs, add_generation_prompt=add_generation_prompt)
        return self._tokenizer.encode(text) if tokenize else text


class GenerateState:
    """Tokenizer and semaphore of the current generation; slime has one object per process."""

    def __init__(self, args: object) -> None:
        """Read the current generation's values.

        Raises:
            RuntimeError: no generation is in progress.
        """
        self.args = args
        self.tokenizer = TokenizerView(_call().ctx.tokenizer)
        self.processor = None
        self.semaphore = asyncio.Semaphore(2**31)
        """Unlimited, because the core limits the samples in flight."""
        self.aborted = False


async def generate(args: object, sample: Sample, sampling_params: Mapping[str, Json]) -> Sample:
    """Slime's default generate function: one engine call, appended to the sample.

    Raises:
        RuntimeError: no generation is in progress.
    """
    call = _call()
    tokenizer = call.ctx.tokenizer
    if not sample.tokens:
        prompt = sample.prompt
        text = prompt if isinstance(prompt, str) else tokenizer.apply_chat_template(prompt)
        sample.tokens = tokenizer.encode(text)
    answer = await answer_generate(call, {"input_ids": list(sample.tokens), "sampling_params": dict(sampling_params)})
    info = cast("dict[str, Json]", answer["meta_info"])
    pairs = cast("list[tuple[float, int, None]]", info["output_token_logprobs"])
    sample.append_response_tokens(
        args,
        tokens=[pair[1] for pair in pairs],
        log_probs=[pair[0] for pair in pairs],
        meta_info=info,
        text=str(answer["text"]),
    )
    return sample


def _call() -> Call:
    call = current_call()
    if call is None:
        raise RuntimeError("no sample is being generated; use GenerateState and generate in a generate function")
    return call
