"""Rendered prompts: what a row says is in them, in order, or the row is bad; a final answer is never closed unsaid."""

from functools import cache
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.data import Finder, HfTokenizer, Prompt, Renderer, Row
from slime_core.data.row_reader import RowReader
from slime_core.data.rows import BadRow
from slime_core.errors import DataError
from slime_core.roles import RowFormat
from slime_core.sample import Json, Message
from tests.data import templates
from tests.data.templates import with_template
from tests.tables import table

ASKED: Message = {"role": "user", "content": "How many?"}
THOUGHT: Message = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nFive."}
CALLING: Message = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"function": {"name": "weather", "arguments": '{"city": "Paris", "at": 12}'}}],
}
RESULT: Message = {"role": "tool", "content": 'It is "20"\ndegrees.'}
TOOLS: Json = [{"type": "function", "function": {"name": "weather"}}]


def read(
    tokenizer: HfTokenizer, template: str, messages: list[Message], tools: Json = None, **fields: object
) -> tuple[str, bool]:
    """The prompt, or why there is none; and whether reasoning was left out."""
    form = RowFormat(input_key="m", apply_chat_template=True, **fields)  # type: ignore[arg-type]
    reader = RowReader(form, with_template(tokenizer, template))
    found, dropped = reader.read(Row("rows.jsonl:1", {"m": [*messages], "tools": tools}))
    if isinstance(found, Prompt):
        return str(found.prompt), dropped
    assert isinstance(found, BadRow)
    return found.why, dropped


@table("name", ["QWEN3", "QWEN3_THINKING", "DEEPSEEK", "LLAMA31", "GEMMA"])
def test_calls_and_results_arrive_in_the_form_of_each_template(tokenizer: HfTokenizer, name: str) -> None:
    text, _ = read(tokenizer, getattr(templates, name), [ASKED, CALLING, RESULT, {**ASKED, "content": " Now? "}])
    assert "rows.jsonl" not in text
    assert "None" not in text
    assert "{'" not in text
    assert '"{' not in text
    assert "Paris" in text


@table("name", ["MISTRAL", "PARTS", "CHATML", "PHI3"])
def test_system_texts_and_parts_arrive(tokenizer: HfTokenizer, name: str) -> None:
    system: Message = {
        "role": "system",
        "content": [{"type": "text", "text": "Be brief. "}, {"type": "text", "text": "Add."}],
    }
    text, _ = read(tokenizer, getattr(templates, name), [system, ASKED, {**THOUGHT, "content": "Six."}, ASKED])
    assert all(each in text for each in ("Be brief. Add.", "How many?", "Six."))
    assert "rows.jsonl" not in text


def test_reasoning_of_earlier_turns_is_counted_and_anything_else_is_a_bad_row(tokenizer: HfTokenizer) -> None:
    for name, dropped in (("QWEN3", True), ("DEEPSEEK", True), ("NEMOTRON", True), ("CHATML", False)):
        text, counted = read(tokenizer, getattr(templates, name), [ASKED, THOUGHT, ASKED])
        assert "Five." in text, name
        assert ("hm" in text, counted) == (not dropped, dropped), name
    silent = templates.CHATML.replace("{{ m.content }}", "{{ m.content if m.role != 'tool' else '' }}")
    cases: list[tuple[str, list[Message], Json, str]] = [
        (silent, [ASKED, RESULT, ASKED], None, r"rows.jsonl:1: message 1 \(tool\): .* leaves out 'It is"),
        (templates.CHATML, [ASKED, CALLING, RESULT], None, r"message 1 \(assistant\): .* leaves out 'weather'"),
        (templates.CHATML, [ASKED], TOOLS, "the row's tools: .* leaves out 'weather'"),
        (templates.LLAMA2, [{"role": "system", "content": "Add."}, ASKED], None, r"message 0 \(system\): .*'Add.'"),
    ]
    for template, messages, tools, says in cases:
        why, _ = read(tokenizer, template, messages, tools)
        with pytest.raises(AssertionError, match=says):
            raise AssertionError(why)


TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
ESCAPES = {"as it is": "{{ m.content }}", "trimmed": "{{ m.content | trim }}", "JSON": "{{ m.content | tojson }}"}
ESCAPES |= {"ASCII": "{{ m.content | tojson(ensure_ascii=true) }}", "HTML": "{{ m.content | e }}"}


@cache
def escaping(tokenizer: HfTokenizer, how: str) -> Renderer:
    template = "{% for m in messages %}<|im_start|>" + ESCAPES[how] + "<|im_end|>{% endfor %}"
    return Renderer(with_template(tokenizer, template), None)


@given(contents=st.lists(TEXT, min_size=1, max_size=5), how=st.sampled_from(sorted(ESCAPES)), lost=st.integers(0, 4))
def test_a_message_is_found_however_it_is_escaped_and_missed_where_it_is_left_out(
    tokenizer: HfTokenizer, contents: list[str], how: str, lost: int
) -> None:
    messages: list[Message] = [{"role": "user", "content": each} for each in contents]
    text = escaping(tokenizer, how).prompt(messages).text
    gone: Message = {"role": "user", "content": "all of this is gone"}
    finder, lost = Finder(text), lost % len(contents)
    for each in messages[:lost]:
        finder.find_next(each, "one that is there")
    with pytest.raises(DataError, match="message 7: the chat template leaves out 'all of this is gone'"):
        finder.find_next(gone, "message 7")


def test_a_prompt_that_ends_with_an_answer_is_refused_unless_a_key_says_what_becomes_of_it(
    tokenizer: HfTokenizer,
) -> None:
    begun: Message = {"role": "assistant", "content": "Let me think. "}
    why, _ = read(tokenizer, templates.CHATML, [ASKED, begun])
    assert "'m' ends with an assistant message" in why
    assert all(each in why for each in ("final_assistant_message", '"cut"', '"continue"'))
    asked = read(tokenizer, templates.CHATML, [ASKED])[0]
    for name in ("CHATML", "LLAMA31", "PARTS", "LLAMA2", "PHI3"):
        template = getattr(templates, name)
        prompt = read(tokenizer, template, [ASKED])[0]
        going_on, _ = read(tokenizer, template, [ASKED, begun], final_assistant_message="continue")
        assert going_on.removeprefix(prompt).lstrip() == "Let me think. ", name
    thinking: Message = {"role": "assistant", "content": "<think>\nLet me "}
    for name in ("CHATML", "QWEN3", "QWEN3_THINKING", "NEMOTRON", "DEEPSEEK"):
        going_on, _ = read(tokenizer, getattr(templates, name), [ASKED, thinking], final_assistant_message="continue")
        assert going_on.endswith("<|im_start|>assistant\n<think>\nLet me "), name
    for more in ([begun], [begun, begun], [CALLING]):
        assert read(tokenizer, templates.CHATML, [ASKED, *more], final_assistant_message="cut")[0] == asked
    assert "nothing is left" in read(tokenizer, templates.CHATML, [begun], final_assistant_message="cut")[0]
    why, _ = read(tokenizer, templates.QWEN3, [ASKED, CALLING], final_assistant_message="continue")
    assert "only if it is a text without tool calls" in why


@table("final", ["refuse", "continue"])
def test_messages_that_are_rendered_later_do_not_end_with_an_answer(
    tokenizer: HfTokenizer, final: Literal["refuse", "continue"]
) -> None:
    reader = RowReader(RowFormat(input_key="m", final_assistant_message=final), tokenizer)
    found, _ = reader.read(Row("x", {"m": [ASKED, THOUGHT]}))
    assert isinstance(found, BadRow)
    assert "final_assistant_message" in found.why


def test_a_template_that_cuts_texts_short_is_refused(tokenizer: HfTokenizer) -> None:
    """It writes a list of parts whole, in Python's way or as JSON, and that is no reason to give it one."""
    for cut in ("m.content[:5]", "m.content[:5] | tojson"):
        text, _ = read(tokenizer, templates.CHATML.replace("m.content", cut), [{**ASKED, "content": "a long question"}])
        assert "the chat template leaves out 'a long question'" in text
