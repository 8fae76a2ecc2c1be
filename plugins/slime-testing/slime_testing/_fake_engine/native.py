"""SGLang's /generate: one prompt or a batch, whole or as a stream."""

import asyncio
import base64
from array import array
from collections.abc import Sequence

from slime_core.sample import Json
from slime_testing._fake_engine.generation import Progress, admit, end_of_stream, event, finished, perform, whole
from slime_testing._fake_engine.http import EVENTS, BadRequest, GenerateBody, Parts, Reply, Request, parse
from slime_testing._fake_engine.state import TOKENIZER, Job, State, new_rid, text_log_probs

EXPERT_LAYERS = 2
EXPERTS_A_TOKEN = 2


async def generate(state: State, request: Request) -> Reply:
    """POST /generate."""
    body = parse(GenerateBody, request)
    prompts, single = _prompts(body)
    jobs = _jobs(body, prompts, single, request)
    single = single and len(jobs) == 1
    admit(state, jobs)
    if body.stream:
        return Reply(200, _stream(state, jobs, body, single), EVENTS)
    results = [_result(each, body) for each in await asyncio.gather(*(finished(state, job) for job in jobs))]
    return whole(results[0] if single else list[Json](results), jobs[0])


async def _stream(state: State, jobs: Sequence[Job], body: GenerateBody, single: bool) -> Parts:
    for index, job in enumerate(jobs):
        async for progress in perform(state, job):
            result = _result(progress, body)
            yield event(result if single else {**result, "index": index}, progress)
    yield end_of_stream(jobs[-1])


def _result(progress: Progress, body: GenerateBody) -> dict[str, Json]:
    meta = progress.meta()
    if body.return_logprob:
        texts = [TOKENIZER.decode([token]) if body.return_text_in_logprobs else None for token in progress.tokens]
        entries = zip(progress.log_probs, progress.tokens, texts, strict=False)  # a scripted flaw: one log-prob too few
        meta["input_token_logprobs"] = [list(each) for each in _of_prompt(progress, body.logprob_start_len)]
        meta["output_token_logprobs"] = [list(entry) for entry in entries]
        meta["output_token_logprobs_length"] = len(progress.log_probs)
    if body.return_sampling_mask:
        meta["output_token_sampling_mask"] = [[token, token + 1] for token in progress.tokens]
    if body.return_routed_experts:
        meta["routed_experts"] = _experts([*progress.job.prompt, *progress.tokens][:-1])
    return {"text": progress.text, "output_ids": list(progress.tokens), "meta_info": meta}


def _of_prompt(progress: Progress, start: int) -> list[tuple[float | None, int, None]]:
    if start < 0:
        return []
    prompt = progress.job.prompt
    scored = zip(text_log_probs(prompt, progress.version)[start:], prompt[start:], strict=True)
    return [(log_prob if place else None, token, None) for place, (log_prob, token) in enumerate(scored)]


def _experts(tokens: Sequence[int]) -> str:
    chosen = [
        (token + layer + 3 * place) % 8
        for token in tokens
        for layer in range(EXPERT_LAYERS)
        for place in range(EXPERTS_A_TOKEN)
    ]
    return base64.b64encode(array("i", chosen).tobytes()).decode()


def _prompts(body: GenerateBody) -> tuple[list[tuple[int, ...]], bool]:
    texts = [body.text] if isinstance(body.text, str) else body.text or []
    alone = [each for each in body.input_ids or () if isinstance(each, int)]
    batch = [each for each in body.input_ids or () if not isinstance(each, int)]
    prompts = [*map(TOKENIZER.encode, texts), *([alone] if alone else []), *batch]
    if (body.text is None) == (body.input_ids is None) or not prompts or not all(prompts):
        raise BadRequest("expected text or input_ids, one of them, with no empty prompt")
    return [tuple(prompt) for prompt in prompts], isinstance(body.text, str) or bool(alone)


def _jobs(body: GenerateBody, prompts: Sequence[tuple[int, ...]], single: bool, request: Request) -> list[Job]:
    count, params, rids = len(prompts), body.sampling_params, body.rid
    sampling = params if isinstance(params, list) else [params] * count
    if not isinstance(rids, list):
        rids = [rids or new_rid()] if single else [f"{rids}_{index}" if rids else new_rid() for index in range(count)]
    if not count == len(sampling) == len(rids):
        raise BadRequest(f"{count} prompts with {len(sampling)} sampling_params and {len(rids)} rids")
    return [
        # SGLang gives each of several samples an id of its own; the one that was sent is lost.
        Job(rid if each.n == 1 else new_rid(), request.path, prompt, each.for_sample(index), request.gone)
        for prompt, each, rid in zip(prompts, sampling, rids, strict=True)
        for index in range(each.n)
    ]
