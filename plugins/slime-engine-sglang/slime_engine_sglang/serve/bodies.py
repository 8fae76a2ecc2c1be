"""Bodies: what `/generate` of SGLang's wire asks, as requests to an engine; what that does not do is refused by name.

Example:

    asked = parse({"text": "2+3=", "sampling_params": {"max_new_tokens": 8}}, tokenizer)
    asked.prompts[0].request
"""

import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import cast

from slime_core.errors import did_you_mean
from slime_core.roles import Extra, GenerateRequest, SamplingParams, Tokenizer
from slime_core.sample import Json

KEYS = {item.name for item in fields(SamplingParams)} | {"sampling_seed"}
BY_DEFAULT: Mapping[str, Json] = {"max_new_tokens": 128, "no_stop_trim": False}
"""SGLang's own, where they are other than a run's."""
HARMLESS = {"spaces_between_special_tokens", "stream_interval"}
"""Settings of sampling that change no token."""
REFUSED = (
    *("image_data", "audio_data", "video_data", "input_embeds", "lora_path", "session_params", "top_logprobs_num"),
    *("return_hidden_states", "return_routed_experts", "return_sampling_mask", "token_ids_logprob"),
)
"""What would change the answer, and what is not told."""


class BadRequest(Exception):
    """It cannot be answered; says what was expected. Status 400."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt."""

    rid: str
    """By which it is aborted."""
    request: GenerateRequest
    """For the engine."""
    log_probs: bool
    """Whether log-probs are told."""
    scored_from: int
    """Token of the prompt from which on its log-probs are told, too; -1: of none."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A body."""

    prompts: Sequence[Prompt]
    """In order."""
    is_single: bool
    """Whether the one prompt was given alone, and not in a list."""
    stream: bool
    """Whether what there is so far is told as it is made."""


def parse(body: Mapping[str, Json], tokenizer: Tokenizer) -> Asked:
    """What a body of `/generate` asks for.

    Raises:
        BadRequest: it is not such a body, or asks for what is not done here.
    """
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
    """Ids of each prompt, and whether it was given alone."""
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
    """Settings of sampling as the core has them."""
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
