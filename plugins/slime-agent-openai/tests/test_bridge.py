from pathlib import Path

from chat import CHATML, MOVES_TOOLS, load_chat

from slime_agent_openai.bridge import Bridge, without_overlap
from slime_agent_openai.message import Message, Role, Tool, ToolCall
from tests.tables import table

TOOLS = (Tool("add", "Adds.", '{"type": "object", "properties": {"a": {"type": "integer"}}}'),)
HEAD = [Message(Role.SYSTEM, "Count."), Message(Role.USER, "What is 17 + 25?")]
CALL = ToolCall("call_1", "add", '{"a": 17, "b": 25}')
CALLED = Message(Role.ASSISTANT, "", calls=(CALL,))
RESULT = Message(Role.TOOL, "42", answers="call_1")


@table(
    "answer, tail, tools",
    [
        (Message(Role.ASSISTANT, "It is 42."), [Message(Role.USER, "Sure?")], ()),
        (Message(Role.ASSISTANT, "It is 42."), [Message(Role.USER, "Sure?")], TOOLS),
        (Message(Role.ASSISTANT, "It is 42."), [Message(Role.SYSTEM, "Hurry."), Message(Role.USER, "Sure?")], ()),
        (CALLED, [RESULT], TOOLS),
        (Message(Role.ASSISTANT, "Adding.", calls=(CALL,)), [RESULT], TOOLS),
        (CALLED, [RESULT, Message(Role.USER, "Sure?")], TOOLS),
        (
            Message(Role.ASSISTANT, "", calls=(CALL, ToolCall("call_2", "add", "{}"))),
            [RESULT, Message(Role.TOOL, "0", answers="call_2")],
            TOOLS,
        ),
    ],
)
def test_suffix_equals_the_template_output(
    bridge: Bridge, answer: Message, tail: list[Message], tools: tuple[Tool, ...]
) -> None:
    until_answered = bridge.whole([*HEAD, answer], tools, open_turn=False).removesuffix("<|im_end|>\n")
    assert bridge.suffix(answer, tail, tools) == bridge.whole([*HEAD, answer, *tail], tools).removeprefix(
        until_answered
    )


def test_template_that_rewrites_history_is_not_bridged(tmp_path: Path) -> None:
    bridge = Bridge(load_chat(tmp_path, MOVES_TOOLS))
    answer, tail = Message(Role.ASSISTANT, "It is 42."), [Message(Role.USER, "Sure?")]
    assert bridge.suffix(answer, tail, TOOLS) is None
    assert bridge.suffix(answer, tail, ()) == "<|im_end|>[INST]Sure?[/INST]"
    assert bridge.suffix(CALLED, [RESULT], TOOLS) == "<|im_end|>[RESULT]42[/RESULT]"


WRITES_TEXT = CHATML.replace(
    """{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}""",
    """{{ call.function.name + ': ' + call.function.arguments }}""",
)
WRITES_PYTHON = CHATML.replace("call.function.arguments | tojson", "call.function.arguments")


@table("template", [WRITES_TEXT, WRITES_PYTHON])
def test_template_with_raw_arguments_gets_text(tmp_path: Path, template: str) -> None:
    assert template != CHATML
    bridge = Bridge(load_chat(tmp_path / str(len(template)), template))
    spaced = Message(Role.ASSISTANT, calls=(ToolCall("call_1", "add", '{"value":17,  "b": true}'),))
    whole = bridge.whole([*HEAD, spaced, RESULT], TOOLS)
    assert '{"value":17,  "b": true}' in whole
    suffix = bridge.suffix(spaced, [RESULT], TOOLS)
    assert suffix is not None
    assert whole.endswith(suffix)
    assert suffix.startswith("<|im_end|>")
    broken = Message(Role.ASSISTANT, calls=(ToolCall("call_1", "add", "17 and 25"), ToolCall("call_2", "add", "")))
    written = bridge.whole([*HEAD, broken], TOOLS, open_turn=False)
    assert '{"value": "17 and 25"}' in written
    assert "{}" in written


CLOSES_CALLS = CHATML.replace("</tool_call>{% endfor %}<|im_end|>", "</tool_call>{% endfor %}{{ CLOSE }}").replace(
    "{{ CLOSE }}", "{% if m.tool_calls %}<|endoftext|>{% else %}<|im_end|>{% endif %}"
)
MOVES_WORDS = CHATML.replace("{{ m.content }}{% for call", "{% for call").replace(
    "</tool_call>{% endfor %}<|im_end|>\n",
    "</tool_call>{% endfor %}{% if not m.tool_calls %}{{ m.content }}{% endif %}<|im_end|>\n"
    "{% if m.tool_calls and not loop.last %}{{ '[' ~ m.content ~ ']' if m.content }}{% endif %}",
)


def test_template_with_a_call_end_token_is_bridged(tmp_path: Path) -> None:
    tokenizer = load_chat(tmp_path, CLOSES_CALLS, ["<|im_end|>", "<|endoftext|>"])
    bridge = Bridge(tokenizer)
    suffix = bridge.suffix(CALLED, [RESULT], TOOLS)
    assert suffix is not None
    assert suffix.startswith("<|endoftext|><|im_start|>user\n<tool_response>\n42")
    assert bridge.whole([*HEAD, CALLED, RESULT], TOOLS).endswith(suffix)
    told = bridge.suffix(Message(Role.ASSISTANT, "It is 42."), [Message(Role.USER, "Sure?")], TOOLS)
    assert told is not None
    assert told.startswith("<|im_end|><|im_start|>user\nSure?")


def test_template_that_moves_text_is_not_bridged(tmp_path: Path) -> None:
    bridge = Bridge(load_chat(tmp_path, MOVES_WORDS))
    assert bridge.suffix(CALLED, [RESULT], TOOLS) is not None
    assert bridge.suffix(Message(Role.ASSISTANT, "Adding.", calls=(CALL,)), [RESULT], TOOLS) is None


def test_template_with_call_ids_is_bridged(tmp_path: Path) -> None:
    template = CHATML.replace("<tool_response>\n{{ m.content }}", "## Return of {{ m.tool_call_id }}\n{{ m.content }}")
    assert template != CHATML
    bridge = Bridge(load_chat(tmp_path, template))
    called = Message(Role.ASSISTANT, calls=(ToolCall("functions.add:7", "add", '{"a": 1}'),))
    suffix = bridge.suffix(called, [Message(Role.TOOL, "42", answers="functions.add:7")], TOOLS)
    assert suffix is not None
    assert "## Return of functions.add:7\n42" in suffix


@table(
    "answer, suffix, rest",
    [([1, 2, 9], [9, 5], [5]), ([1, 2], [9, 5], [9, 5]), ([1, 9, 5], [9, 5, 6], [6]), ([], [9], [9])],
)
def test_turn_end_is_not_written_twice(answer: list[int], suffix: list[int], rest: list[int]) -> None:
    assert without_overlap(answer, suffix) == rest
