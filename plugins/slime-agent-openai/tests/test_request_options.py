"""Options of requests: sampling, output formats, rules of tool calls, and template settings."""

import asyncio
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from chat import CHATML, load_chat
from serving import served
from talker import Talker

from slime_agent_openai.session import SessionLimits
from slime_agent_openai.wires.options import KWARGS, OUTPUT_OPTIONS, PROMPT_OPTIONS, RESERVED
from slime_core.data import HfTokenizer
from slime_core.sample import Json
from tests.tables import table

USER: Json = {"role": "user", "content": "What is 17 + 25?"}
OPTIONS: dict[str, dict[str, Json]] = json.loads(Path(__file__).with_name("request_options.json").read_text("utf-8"))
BODIES: dict[str, dict[str, Json]] = OPTIONS["bodies"]  # type: ignore[assignment]
IDLE = OPTIONS["idle"]  # Fields as they ask for nothing that is not done anyway
BENT = OPTIONS["bent"]  # Fields that are settings of the engine's, other than the run's
UNSUPPORTED = OPTIONS["undrawn"]  # Fields that are none of its settings
FORMS = OPTIONS["forms"]
SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "integer"}}}
EACH = table("path", BODIES)


@pytest.fixture(scope="module")
def talker(tokenizer: HfTokenizer) -> Talker:
    return Talker(tokenizer, lambda text, turn: "It is 42.")


def answered(
    talker: Talker, path: str, *fields: dict[str, Json], limits: SessionLimits | None = None, **context: object
) -> tuple[list[tuple[int, dict[str, str]]], Counter[str]]:
    """Status and error of each request, and what the session counted."""

    async def run() -> tuple[list[tuple[int, dict[str, str]]], Counter[str]]:
        async with served(talker, limits, **context) as there:
            told = []
            for each in fields:
                status, body = await there.post(path, {"model": "policy", **BODIES[path], **each})
                error: dict[str, str] = body.get("error") or {}  # type: ignore[assignment]
                told.append((status, {**error, **error.get("details", {})}))  # type: ignore[dict-item]
            return told, +there.session.counts

    talker.log.clear()
    return asyncio.run(run())


@EACH
def test_default_values_of_fields_are_accepted(talker: Talker, path: str) -> None:
    told, counts = answered(talker, path, IDLE)
    assert (told, counts) == ([(200, {})], {})
    assert replace(talker.log[0].sampling, max_new_tokens=400) == talker.context().sampling


@EACH
def test_changed_sampling_is_refused_in_training(talker: Talker, path: str) -> None:
    fields = BENT | UNSUPPORTED
    told, _ = answered(talker, path, *({name: value} for name, value in fields.items()))
    for name, (status, error) in zip(fields, told, strict=True):
        code = error.get("code", error.get("error_code"))
        assert (status, code, error["param"]) == (400, "unsupported_parameter", name)
        assert 'remove it, or set on_sampling = "ignore" in the generator' in error["message"]
    assert talker.log == []


@EACH
def test_changed_sampling_can_be_ignored_and_counted(talker: Talker, path: str) -> None:
    each = [{name: value} for name, value in (BENT | UNSUPPORTED).items()]
    told, counts = answered(talker, path, *each, BENT | UNSUPPORTED, {}, limits=SessionLimits(on_sampling="ignore"))
    assert [status for status, _ in told] == [200] * (len(each) + 2)
    assert counts == {"sampling_ignored": len(each) + 1}
    assert len({repr(asked.sampling) for asked in talker.log}) == 1


@EACH
def test_evaluation_accepts_engine_sampling_settings(talker: Talker, path: str) -> None:
    wanted = {name: value for name, value in BENT.items() if name != "repeat_penalty"}
    told, _ = answered(talker, path, wanted, UNSUPPORTED, evaluation=True)
    assert [(status, error.get("param")) for status, error in told] == [(200, None), (400, "bad_words")]
    (asked,) = talker.log
    taken = asked.sampling
    assert (taken.temperature, taken.top_k, taken.min_p, taken.repetition_penalty) == (0.5, 20, 0.05, 1.05)
    assert (taken.presence_penalty, taken.frequency_penalty) == (1.5, -1)
    assert (taken.min_new_tokens, taken.ignore_eos) == (4, True)


@EACH
def test_engine_specific_output_formats_are_constraints(talker: Talker, path: str) -> None:
    each = [{name: value} for name, value in FORMS.items()]
    refused, _ = answered(talker, path, *each)
    assert [(status, error["param"]) for status, error in refused] == [(400, name) for name in FORMS]
    assert all('or set on_constraints = "ignore" in the generator' in error["message"] for _, error in refused)
    told, counts = answered(talker, path, *each, limits=SessionLimits(on_constraints="ignore"))
    assert (told, counts) == ([(200, {})] * len(FORMS), {"constraints_ignored": len(FORMS)})


def offered(path: str, **more: Json) -> dict[str, Json]:
    """A request with a tool."""
    function: dict[str, Json] = {"name": "add", "description": "Adds.", **more}
    match path:
        case "messages":
            return {"tools": [{**function, "input_schema": SCHEMA}]}
        case "responses":
            return {"tools": [{"type": "function", **function, "parameters": SCHEMA}]}
    return {"tools": [{"type": "function", "function": {**function, "parameters": SCHEMA}}]}


ONE_CALL: dict[str, dict[str, Json]] = {
    "chat/completions": {"parallel_tool_calls": False},
    "responses": {"parallel_tool_calls": False},
    "messages": {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
}


@table("path", ONE_CALL)
def test_unsupported_tool_call_rules_are_counted(talker: Talker, path: str) -> None:
    free, strict = offered(path, strict=False), offered(path, strict=True)
    asked = (ONE_CALL[path] | free, strict, ONE_CALL[path] | strict, free, offered(path), ONE_CALL[path])
    told, counts = answered(talker, path, *asked)
    assert [status for status, _ in told] == [200] * len(asked)
    assert counts == {"call_rules_ignored": 3}
    prompts = [each.prompt for each in talker.log]
    assert len(set(prompts[:5])) == 1  # the model is shown the same tools
    assert prompts[5] != prompts[0]


QUIET = CHATML.replace(
    "<|im_start|>assistant\n{% endif %}",
    "<|im_start|>assistant\n{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}",
)
CHATS = [path for path in BODIES if path != "completions"]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Talker:
    """A template that can be told not to think, as Qwen 3's."""
    assert QUIET.count("enable_thinking") == 1
    return Talker(load_chat(tmp_path_factory.mktemp("quiet"), QUIET), lambda text, turn: "It is 42.")


@table("path", CHATS)
def test_template_kwargs_of_a_request_reach_the_template(quiet: Talker, path: str) -> None:
    each: list[dict[str, Json]] = [{}, {KWARGS: {"enable_thinking": False}}, {KWARGS: {"enable_thinking": True}}]
    told, counts = answered(quiet, path, *each, {KWARGS: {}}, {KWARGS: None})
    assert (told, counts) == ([(200, {})] * 5, {})
    prompts = [quiet.tokenizer.decode(asked.prompt, skip_special_tokens=False) for asked in quiet.log]
    assert prompts[1] == prompts[0] + "<think>\n\n</think>\n\n"
    assert prompts[2] == prompts[3] == prompts[4] == prompts[0]


def test_changed_template_kwargs_fork_the_conversation(quiet: Talker) -> None:
    said: list[Json] = [USER, {"role": "assistant", "content": "It is 42."}, {"role": "user", "content": "And 1 + 1?"}]
    silent: dict[str, Json] = {KWARGS: {"enable_thinking": False}}

    async def run() -> tuple[int, int, int]:
        async with served(quiet) as there:
            for messages, more in (([USER], silent), (said, silent), (said, {})):
                status, _ = await there.post("chat/completions", {"messages": messages, **more})
                assert status == 200
            counts = there.session.forest.counts
            return counts.turns, counts.bridged, counts.forks

    quiet.log.clear()
    assert asyncio.run(run()) == (3, 1, 1)
    first, then, other = (list(asked.prompt) for asked in quiet.log)
    assert then[: len(first) + len(quiet.log[0].output)] == [*first, *quiet.log[0].output]
    assert "<think>" not in quiet.tokenizer.decode(other, skip_special_tokens=False)


@table("path", CHATS)
@table("name", sorted(RESERVED))
def test_reserved_template_kwargs_are_refused(talker: Talker, path: str, name: str) -> None:
    ((status, error),), _ = answered(talker, path, {KWARGS: {name: True}})
    assert (status, error["param"]) == (400, f"{KWARGS}.{name}")


ASKS = {name: only.values[0] if only.values else None for name, only in PROMPT_OPTIONS.items()}
"""Fields of servers of open models as they ask for nothing."""


@EACH
def test_unsupported_template_fields_are_refused(talker: Talker, path: str) -> None:
    refused = OUTPUT_OPTIONS if path == "completions" else PROMPT_OPTIONS
    idle, counts = answered(talker, path, {name: ASKS[name] for name in refused})
    assert (idle, counts) == ([(200, {})], {})
    told, _ = answered(talker, path, *({name: 7} for name in refused))
    codes = [(status, error.get("code", error.get("error_code")), error["param"]) for status, error in told]
    assert codes == [(400, "unsupported_parameter", name) for name in refused]
