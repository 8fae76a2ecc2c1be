"""OpenAI's chat completions, as SGLang serves them: whole or as a stream, with tool calls and log-probs."""

import json
from collections.abc import Iterator

from slime_core.sample import Json, Message
from slime_testing._fake_engine.control import MODEL
from slime_testing._fake_engine.generation import Progress, admit, end_of_stream, event, finished, perform, whole
from slime_testing._fake_engine.http import EVENTS, ChatBody, Parts, Reply, Request, Sampling, parse
from slime_testing._fake_engine.state import TOKENIZER, Job, State, ToolCall, new_rid


async def chat_completions(state: State, request: Request) -> Reply:
    """POST /v1/chat/completions."""
    body = parse(ChatBody, request)
    messages: list[Message] = [{**each, "content": _text(each.get("content"))} for each in body.messages]
    prompt = TOKENIZER.encode(TOKENIZER.apply_chat_template(messages))
    job = Job(body.rid or new_rid(), request.path, tuple(prompt), _sampling(body, state, len(prompt)), request.gone)
    admit(state, [job])
    if body.stream:
        return Reply(200, _stream(state, job, body), EVENTS)
    return whole(_completion(await finished(state, job), body), job)


def _sampling(body: ChatBody, state: State, prompt: int) -> Sampling:
    budget = body.max_completion_tokens if body.max_tokens is None else body.max_tokens
    return Sampling(
        max_new_tokens=max(0, state.context_length - prompt) if budget is None else budget,
        temperature=body.temperature,
        sampling_seed=body.seed,
        stop=body.stop,
        stop_token_ids=body.stop_token_ids,
        ignore_eos=body.ignore_eos,
    )


def _completion(progress: Progress, body: ChatBody) -> Json:
    message: dict[str, Json] = {"role": "assistant", "content": progress.text, "tool_calls": None}
    if call := _tool_call(progress):
        message |= {"content": None, "tool_calls": [call]}
    choice: dict[str, Json] = {"index": 0, "message": message, "finish_reason": _reason(progress), "logprobs": None}
    if body.logprobs:
        choice["logprobs"] = _logprobs(progress)
    return {**_head(progress, "chat.completion"), "choices": [choice], "usage": _usage(progress)}


async def _stream(state: State, job: Job, body: ChatBody) -> Parts:
    told: str | None = None
    async for progress in perform(state, job):
        for delta in _deltas(progress, told):
            yield event(_chunk(progress, delta, None), progress)
        told = progress.text
        if progress.finish is not None:
            yield event(_chunk(progress, {}, _reason(progress)), progress)
            if body.stream_options and body.stream_options.include_usage:
                head = _head(progress, "chat.completion.chunk")
                yield event({**head, "choices": [], "usage": _usage(progress)}, progress)
    yield end_of_stream(job)


def _deltas(progress: Progress, told: str | None) -> Iterator[dict[str, Json]]:
    if told is None:
        yield {"role": "assistant", "content": ""}
    if not isinstance(progress.job.behaviour, ToolCall):
        yield {"content": progress.text[len(told or "") :]}
    elif call := _tool_call(progress):
        function = call["function"]
        assert isinstance(function, dict)
        yield {"tool_calls": [{**call, "index": 0, "function": {**function, "arguments": ""}}]}
        yield {"tool_calls": [{"index": 0, "function": {"arguments": function["arguments"]}}]}


def _chunk(progress: Progress, delta: dict[str, Json], reason: str | None) -> Json:
    choice: Json = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
    return {**_head(progress, "chat.completion.chunk"), "choices": [choice]}


def _tool_call(progress: Progress) -> dict[str, Json] | None:
    behaviour = progress.job.behaviour
    if not isinstance(behaviour, ToolCall) or _reason(progress) != "tool_calls":
        return None
    arguments = json.dumps(dict(behaviour.arguments))
    function: dict[str, Json] = {"name": behaviour.name, "arguments": arguments}
    return {"id": f"call_{progress.job.rid}", "type": "function", "function": function}


def _reason(progress: Progress) -> str | None:
    if progress.finish is None:
        return None
    reason = str(progress.finish["type"])
    return "tool_calls" if reason == "stop" and isinstance(progress.job.behaviour, ToolCall) else reason


def _logprobs(progress: Progress) -> Json:
    return {
        "content": [
            {"token": text, "logprob": value, "bytes": list(text.encode("utf-8", "replace")), "top_logprobs": []}
            for text, value in zip(map(chr, progress.tokens), progress.log_probs, strict=False)
        ]
    }


def _head(progress: Progress, kind: str) -> dict[str, Json]:
    return {
        "id": progress.job.rid,
        "object": kind,
        "created": 0,
        "model": MODEL,
        "metadata": {"weight_version": progress.meta()["weight_version"]},
    }


def _usage(progress: Progress) -> Json:
    prompt = len(progress.job.prompt)
    return {"prompt_tokens": prompt, "completion_tokens": progress.count, "total_tokens": prompt + progress.count}


def _text(content: Json) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return "" if content is None else str(content)
