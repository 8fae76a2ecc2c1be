"""What models get wrong, and each family's own ways."""

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from slime_agent_openai.message import Tool
from slime_agent_openai.parsers.answer import message_of
from slime_agent_openai.parsers.families import OWN
from slime_agent_openai.parsers.pieces import Piece
from tests.tables import table

if TYPE_CHECKING:
    from conftest import Written

HERE = Path(__file__)
OPEN, CLOSE = "<tool_call>", "</tool_call>"
DEEP = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
KIMI = "<|tool_calls_section_begin|><|tool_call_begin|>"
LFM, LFM_ENDS = "<|tool_call_start|>", "<|tool_call_end|>"
OSS = "<|channel|>commentary to=functions.note <|constrain|>json<|message|>"
GEMMA, GEMMA_ENDS, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'


@table(
    "way, answer",
    [
        *json.loads(HERE.with_name("no_calls.json").read_text("utf-8")),
        ("lfm2", f"{LFM}[note(query={'[' * 300})]"),
        ("gemma4", f"{GEMMA}call:note{{query:{'[' * 300}"),
    ],
)
def test_malformed_call_is_counted_text(written: Mapping[str, "Written"], way: str, answer: str) -> None:
    for each in (way, f"{way}, spelled"):
        reading = written[each].read(answer)
        assert (reading.message.text, reading.message.calls) == (answer.rstrip("\n"), ())
        assert reading.malformed == 1


def test_malformed_call_leaves_other_calls_intact(written: Mapping[str, "Written"]) -> None:
    good = '{"name": "note", "arguments": {"query": "x"}}'
    for way, answer in (
        ("hermes", f"{OPEN}nothing{CLOSE}\n{OPEN}{good}{CLOSE}"),
        ("hermes", f"{OPEN}nothing{OPEN}{good}{CLOSE}"),
        ("mistral", '[TOOL_CALLS]none[TOOL_CALLS]note[ARGS]{"query": "x"}'),
    ):
        reading = written[way].read(answer)
        assert [(call.name, call.arguments) for call in reading.message.calls] == [("note", '{"query": "x"}')], way
        assert reading.malformed == 1


@table(
    "answer",
    ['{"name": "Ada", "age": 36}', '{"name": "note", "age": 36}', '{"answer": [1, 2]}', "{", '{"name": "note"}'],
)
def test_json_answer_is_not_a_call(written: Mapping[str, "Written"], answer: str) -> None:
    reading = written["llama3"].read(answer)
    assert (reading.message.text, reading.message.calls, reading.malformed) == (answer, (), 0)


def test_llama_separates_calls_by_semicolons(written: Mapping[str, "Written"]) -> None:
    call = '{"type": "function", "name": "note", "parameters": {"query": "x"}}'
    for before in ("", "<|python_tag|>"):
        reading = written["llama3"].read(f"{before}{call}; {call}")
        assert [call.arguments for call in reading.message.calls] == ['{"query": "x"}'] * 2
        assert reading.malformed == 0


def test_llama_text_after_a_call_is_kept(written: Mapping[str, "Written"]) -> None:
    for after in ("; then more", '{"name": "unheard_of", "parameters": {}}', "{"):
        reading = written["llama3"].read(f'{{"name": "note", "parameters": {{}}}}{after}')
        assert [call.arguments for call in reading.message.calls] == ["{}"]
        assert (reading.message.text, reading.malformed) == (after, 0)


@table(
    "way, begins, repeated",
    [
        ("mistral", "[TOOL_CALLS]x", " " * 40_000),
        ("deepseek", f"{DEEP}x", " " * 40_000),
        ("gpt-oss", f'{OSS}{{"query": "', "<|start|>" * 10_000),
        ("lfm2", f"{LFM}[note(query=", "' " * 20_000),
        ("glm", f"{OPEN}note", "<arg_key></arg_key><arg_value>" * 5_000),
    ],
)
def test_endless_repetition_parses_in_linear_time(
    written: Mapping[str, "Written"], way: str, begins: str, repeated: str
) -> None:
    family = written[way].family
    markers = re.compile(f"({'|'.join(re.escape(marker) for marker in family.markers)})")
    answer, parser, deltas = f"{begins}{repeated}.", family.parser(str, (Tool("note"),), False), []
    begun = time.process_time()
    for text in filter(None, markers.split(answer)):
        deltas += parser.feed(Piece(text, marker=text in family.markers))
    deltas += parser.end()
    assert (message_of(deltas).text, parser.malformed) == (answer, 1)
    assert time.process_time() - begun < 2


def test_missing_closing_marker_is_accepted(written: Mapping[str, "Written"]) -> None:
    for way, answer in (
        ("hermes", f'{OPEN}{{"name": "note", "arguments": {{}}}}'),
        ("qwen3-coder", f"{OPEN}<function=note></function>"),
        ("deepseek", f"{DEEP}note<｜tool▁sep｜>{{}}"),
        ("kimi-k2", f"{KIMI}functions.note:0<|tool_call_argument_begin|>{{}}"),
        ("lfm2", f"{LFM}[note()]"),
        ("gemma4", f"{GEMMA}call:note{{}}"),
        ("gpt-oss", f"{OSS}{{}}"),
    ):
        reading = written[way].read(answer)
        assert [(call.name, call.arguments) for call in reading.message.calls] == [("note", "{}")], way
        assert reading.malformed == 0


@table(
    "written_as, wanted",
    [
        (r"""query='a\'b\\', tags=['x', "y"]""", r"""{"query": "a'b\\", "tags": ["x", "y"]}"""),
        ("query='it's so', limit=-1", '{"query": "it\'s so", "limit": -1}'),
        ("query='say \"it\"\nand go', ratio=1.50", r'{"query": "say \"it\"\nand go", "ratio": 1.50}'),
        (r"query='\ud83d\ude42 \xe9 \d'", r'{"query": "🙂 é \\d"}'),
        ("from='a', my-class=1", '{"from": "a", "my-class": 1}'),
        (
            "where={'a': [None, true], \"b\": {}}, ratio=1e-05",
            '{"where": {"a": [null, true], "b": {}}, "ratio": 1e-05}',
        ),
        ("query={1, 2}", None),
        ("query=b'x'", None),
        ("'x'", None),
        (" query = 'x', ", '{"query": "x"}'),
    ],
)
def test_lfm_calls_use_python_syntax(written: Mapping[str, "Written"], written_as: str, wanted: str | None) -> None:
    reading = written["lfm2"].read(f"See.{LFM} [look-up({written_as}), note()] {LFM_ENDS}")
    if wanted is None:
        assert (reading.message.calls, reading.malformed) == ((), 1)
        return
    calls = [(call.name, call.arguments) for call in reading.message.calls]
    assert calls == [("look-up", wanted), ("note", "{}")]
    assert (reading.message.text, reading.malformed) == ("See.", 0)


@table(
    "written_as, wanted",
    [
        ("query:Q42Q,limit:-1,exact:True", '{"query": "42", "limit": -1, "exact": true}'),
        ("query:Qa, {b}: [c]Q", '{"query": "a, {b}: [c]"}'),
        (
            "where:{a:[None,Q<tool_call|>Q],QbQ:{}}, tags: [ ]",
            '{"where": {"a": [null, "<tool_call|>"], "b": {}}, "tags": []}',
        ),
        ("query:no quotes", '{"query": "no quotes"}'),
    ],
)
def test_gemma_calls_use_unquoted_keys(written: Mapping[str, "Written"], written_as: str, wanted: str) -> None:
    call = f"{GEMMA}call:note{{{written_as.replace('Q', QUOTE)}}}{GEMMA_ENDS}"
    for way in ("gemma4", "gemma4, spelled"):
        reading = written[way].read(f"<|channel>thought\nHm.\n<channel|>See.{call}{call}")
        assert [json.loads(call.arguments) for call in reading.message.calls] == [json.loads(wanted)] * 2
        assert (reading.message.text, reading.message.reasoning, reading.malformed) == ("See.", "Hm.", 0)
        assert OWN["gemma4"].thinks("<|turn>model\n<|channel>thought\n")


def test_harmony_headers_name_the_channel(written: Mapping[str, "Written"]) -> None:
    more = "<|end|><|start|>assistant"
    answer = (
        f"<|channel|>analysis<|message|>Hm.{more}<|channel|>commentary<|message|>Let me see.{more}"
        f"<|channel|>analysis<|message|>So.{more}<|channel|>final<|message|>It is 42.\n<|return|>"
    )
    for way in ("gpt-oss", "gpt-oss, spelled"):
        message = written[way].read(answer).message
        assert (message.text, message.reasoning, message.calls) == ("Let me see.\n\nIt is 42.\n", "Hm.\n\nSo.", ())


@table(
    "head",
    [
        "<|channel|>commentary to=functions.note <|constrain|>json",
        "<|channel|>commentary to=functions.note json",
        " to=functions.note<|channel|>commentary json",
        " to=functions.note<|channel|>analysis",
        "<|channel|>commentary to=note",
    ],
)
def test_harmony_header_names_the_tool(written: Mapping[str, "Written"], head: str) -> None:
    for way in ("gpt-oss", "gpt-oss, spelled"):
        spaced = ' {"query" :  "<|end|>"}'
        reading = written[way].read(f"{head}<|message|>{spaced}<|call|>")
        assert [(call.name, call.arguments) for call in reading.message.calls] == [("note", spaced)]
        assert (reading.message.text, reading.malformed) == ("", 0)


def test_harmony_header_may_be_in_the_prompt(written: Mapping[str, "Written"]) -> None:
    prompt = "<|start|>assistant<|channel|>analysis<|message|>"
    assert OWN["gpt-oss"].thinks(prompt)
    assert not OWN["gpt-oss"].thinks("<|start|>assistant")
    reading = written["gpt-oss"].read("Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.", thinks=True)
    assert (reading.message.reasoning, reading.message.text) == ("Hm.", "Yes.")
    assert written["gpt-oss"].read("Just so.").message.text == "Just so."
    assert written["gpt-oss"].read("<|channel|>final<|message|>So.<|end|><|start|>").message.text == "So."


def test_harmony_calls_without_tools_are_text(written: Mapping[str, "Written"]) -> None:
    reading = written["gpt-oss"].read(f"{OSS}{{}}<|call|>", tools=())
    assert (reading.message.text, reading.message.calls, reading.malformed) == (f"{OSS}{{}}", (), 0)


def test_kimi_call_ids_are_kept(written: Mapping[str, "Written"]) -> None:
    def call(name: str) -> str:
        return f"<|tool_call_begin|>{name}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"

    heads = ("functions.note:3", " functions.look_up:4 ", "functions.note:3", "note:5", "functions.note")
    answer = f"<|tool_calls_section_begin|>{''.join(map(call, heads))}<|tool_calls_section_end|>"
    calls = written["kimi-k2"].read(answer).message.calls
    assert [call.id for call in calls] == ["functions.note:3", "functions.look_up:4", "call_1", "call_2", "call_3"]
    assert [call.name for call in calls] == ["note", "look_up", "note", "note", "note"]
