"""Generations over SGLang's wire: `/generate` bodies as requests to an engine, jobs under way, and replies.

Example:

    asked = parse({"text": "2+3=", "sampling_params": {"max_new_tokens": 8}}, tokenizer)
    async for made in jobs.follow(asked.prompts[0]):      # the same object, with more each time
        result(asked.prompts[0], made, tokenizer, "default")
"""

import asyncio
import random
import uuid
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import cast

from slime_core.errors import did_you_mean
from slime_core.roles import (
    EngineExtras,
    Extra,
    FinishReason,
    GenerateChunk,
    GenerateRequest,
    SamplingParams,
    StreamsTokens,
    Tokenizer,
)
from slime_core.sample import Json

KEYS = {item.name for item in fields(SamplingParams)} | {"sampling_seed"}
BY_DEFAULT: Mapping[str, Json] = {"max_new_tokens": 128, "no_stop_trim": False}
"""SGLang's own, where they are other than a run's."""
HARMLESS = {"spaces_between_special_tokens", "stream_interval"}  # Settings of sampling that change no token
REFUSED = (
    *("image_data", "audio_data", "video_data", "input_embeds", "lora_path", "session_params", "top_logprobs_num"),
    *("return_hidden_states", "return_routed_experts", "return_sampling_mask", "token_ids_logprob"),
)  # What would change the answer, and what is not told


class BadRequest(Exception):
    """It cannot be answered; says what was expected. Status 400."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt."""

    rid: str  # By which it is aborted
    request: GenerateRequest  # For the engine
    log_probs: bool  # Whether log-probs are told
    scored_from: int  # Token of the prompt from which on its log-probs are told, too; -1: of none


@dataclass(frozen=True, slots=True)
class Asked:
    """A body."""

    prompts: Sequence[Prompt]  # In order
    is_single: bool  # Whether the one prompt was given alone, and not in a list
    stream: bool  # Whether what there is so far is told as it is made


def parse(body: Mapping[str, Json], tokenizer: Tokenizer) -> Asked:
    """What a body of `/generate` asks for. Raises BadRequest: it is none, or asks for what is not done here."""
    for key in REFUSED:
        if body.get(key):
            raise BadRequest(f"{key}: this server gives tokens and log-probs alone; leave it out, or ask SGLang")
    prompts, is_single = _prompts(body, tokenizer)
    params, rids = body.get("sampling_params") or {}, body.get("rid")
    each = params if isinstance(params, list) else [params] * len(prompts)
    if not isinstance(rids, list):
        given = is_single and isinstance(rids, str)
        rids = [rids] if given else [uuid.uuid4().hex for _ in prompts]
    if not len(prompts) == len(each) == len(rids):
        raise BadRequest(f"{len(prompts)} prompts with {len(each)} sampling_params and {len(rids)} ids in rid")
    start, tells = body.get("logprob_start_len"), bool(body.get("return_logprob"))
    scored_from = start if tells and isinstance(start, int) else -1
    made = [
        Prompt(str(rid), _request(prompt, sampling, scores=0 <= scored_from < len(prompt)), tells, scored_from)
        for prompt, sampling, rid in zip(prompts, each, rids, strict=True)
    ]
    return Asked(made, is_single, bool(body.get("stream")))


def _prompts(body: Mapping[str, Json], tokenizer: Tokenizer) -> tuple[list[list[int]], bool]:
    text, ids = body.get("text"), body.get("input_ids")
    if (text is None) == (ids is None):
        raise BadRequest("expected text or input_ids, one of them")
    if text is not None:
        texts = text if isinstance(text, list) else [text]
        if not all(isinstance(each, str) for each in texts):
            raise BadRequest("text: expected a text, or a list of texts")
        found = [list(tokenizer.encode(cast(str, each))) for each in texts]
        return _checked(found), isinstance(text, str)
    is_single = isinstance(ids, list) and not any(isinstance(each, list) for each in ids)
    return _checked([ids] if is_single else ids), is_single


def _checked(prompts: object) -> list[list[int]]:
    if not isinstance(prompts, list) or not prompts or not all(map(_is_prompt, prompts)):
        raise BadRequest("input_ids: expected a list of ids, or a list of such lists, none of them empty")
    return prompts


def _is_prompt(ids: object) -> bool:
    return isinstance(ids, list) and bool(ids) and all(type(each) is int for each in ids)


def _request(prompt: Sequence[int], given: Json, *, scores: bool) -> GenerateRequest:
    if not isinstance(given, dict):
        raise BadRequest("sampling_params: expected an object, or a list of one for each prompt")
    params = dict(_params(given))
    seed = params.pop("sampling_seed", None)
    try:
        sampling = replace(SamplingParams(128), **params)  # type: ignore[arg-type]  # it looks at each itself
    except (TypeError, ValueError) as error:
        raise BadRequest(f"sampling_params: {error}") from None
    want = frozenset({Extra.PROMPT_LOG_PROBS}) if scores else frozenset[Extra]()
    return GenerateRequest(prompt, sampling, seed if isinstance(seed, int) else random.getrandbits(62), want=want)


def _params(given: Mapping[str, Json]) -> Iterator[tuple[str, object]]:
    for key, value in {**BY_DEFAULT, **given}.items():
        if value is None or key in HARMLESS or (key == "n" and value == 1):
            continue
        if key == "n":
            raise BadRequest("sampling_params.n: one response a request here; send it several times")
        if key not in KEYS:
            raise BadRequest(f"sampling_params.{key}: this server does not do it.{did_you_mean(key, KEYS)}")
        if key == "stop":
            yield key, tuple(value) if isinstance(value, list) else (value,)
        elif key == "stop_token_ids" and isinstance(value, list):
            yield key, frozenset(value)
        elif key == "logit_bias" and isinstance(value, dict):
            yield key, {int(token): bias for token, bias in value.items()}
        else:
            yield key, value


@dataclass(slots=True)
class Made:
    """A response so far."""

    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    finish: FinishReason | None = None
    matched: int | str | None = None
    extras: EngineExtras | None = None
    version: int | None = None  # Of the weights that made it; None where there is nothing


def result(prompt: Prompt, made: Made, tokenizer: Tokenizer, version: str) -> dict[str, Json]:
    """An event of a stream, or the whole answer, as SGLang writes it."""
    count = len(made.tokens)
    meta: dict[str, Json] = {
        "id": prompt.rid,
        "finish_reason": finish_reason(made),
        "prompt_tokens": len(prompt.request.prompt),
        "completion_tokens": count,
        "cached_tokens": 0,
        "weight_version": version,
        "weight_versions": [{"version": version, "start": 0, "end": count}] if count else [],
    }
    if prompt.log_probs:
        entries = zip(made.log_probs, made.tokens, strict=True)
        meta["input_token_logprobs"] = _scored(prompt, made.extras)
        meta["output_token_logprobs"] = [[log_prob, token, None] for log_prob, token in entries]
    return {
        "text": text_of(made, tokenizer, prompt.request.sampling),
        "output_ids": list(made.tokens),
        "meta_info": meta,
    }


def finish_reason(made: Made) -> Json:
    """As SGLang has it; None while it goes on."""
    match made.finish:
        case None:
            return None
        case FinishReason.STOP:
            return {"type": "stop", "matched": made.matched}
        case FinishReason.LENGTH:
            return {"type": "length", "length": len(made.tokens)}
        case FinishReason.ABORT:
            return {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}


def text_of(made: Made, tokenizer: Tokenizer, asked: SamplingParams) -> str:
    """The text, without what ended it unless `no_stop_trim` says otherwise."""
    trims = made.finish is FinishReason.STOP and not asked.no_stop_trim
    tokens = made.tokens[:-1] if trims and isinstance(made.matched, int) else made.tokens
    text = tokenizer.decode(tokens, skip_special_tokens=asked.skip_special_tokens)
    return text.partition(made.matched)[0] if trims and isinstance(made.matched, str) else text


def _scored(prompt: Prompt, extras: EngineExtras | None) -> list[Json]:
    """Entries of the prompt's tokens from one of them on; the first that is told has no log-prob."""
    ids, start = prompt.request.prompt, prompt.scored_from
    told: Sequence[float] | None = extras.prompt_log_probs if extras is not None else None
    if told is None or start < 0:
        return []
    log_probs = [None, *told][start:]
    return [
        [log_prob if place else None, token, None]
        for place, (log_prob, token) in enumerate(zip(log_probs, ids[start:], strict=True))
    ]


News = GenerateChunk | Exception | None  # A part, what ended it, or None: it was aborted


class Jobs:
    """What one engine is asked over HTTP."""

    def __init__(self, engine: StreamsTokens) -> None:
        self._engine = engine
        self._news: dict[str, asyncio.Queue[News]] = {}
        self._going = asyncio.Event()
        self._going.set()

    @property
    def count(self) -> int:
        return len(self._news)

    def abort(self, rid: str | None = None) -> None:
        for each in [*self._news] if rid is None else [rid] if rid in self._news else []:
            self._news[each].put_nowait(None)

    def pause(self) -> None:
        self._going.clear()

    def go_on(self) -> None:
        self._going.set()

    async def follow(self, prompt: Prompt) -> AsyncGenerator[Made, None]:
        if prompt.rid in self._news:
            raise BadRequest(f"rid {prompt.rid!r} is under way already; give each request one of its own")
        news = self._news[prompt.rid] = asyncio.Queue()
        made, reading = Made(), asyncio.create_task(self._read(prompt, news))
        try:
            while made.finish is None:
                match await news.get():
                    case None:
                        made.finish = FinishReason.ABORT
                    case Exception() as error:
                        raise error
                    case GenerateChunk() as chunk:
                        made.tokens += chunk.tokens
                        made.log_probs += chunk.log_probs
                        made.finish, made.matched, made.extras = chunk.finish, chunk.matched, chunk.extras
                        made.version = chunk.weight_version
                yield made
        finally:
            del self._news[prompt.rid]
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

    async def _read(self, prompt: Prompt, news: "asyncio.Queue[News]") -> None:
        await self._going.wait()
        try:
            async for chunk in self._engine.stream(prompt.request):
                news.put_nowait(chunk)
        except Exception as error:
            news.put_nowait(error)
