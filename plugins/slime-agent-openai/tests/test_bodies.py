"""Whatever is sent after whatever, it is read as JSON is; and what was read before is not read again."""

import json
from collections.abc import Sequence
from hashlib import blake2b

from hypothesis import given
from hypothesis import strategies as st

from slime_agent_openai.message import Message, Request, Role
from slime_agent_openai.wires.bodies import Bodies, HistoryCache
from slime_agent_openai.wires.chat import read_chat
from tests.tables import table

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.floats(-2, 2)
    | st.sampled_from(["", "messages", '"messages": [', "ü\n"]),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.sampled_from(["messages", "a", ""]), each, max_size=2),
    max_leaves=6,
)
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")])
BROKEN = [
    "",
    "]",
    ",",
    "[",
    "{",
    '{"messages": [1,]}',
    '{"messages": [1',
    '{"messages": [1] 2}',
    '{"messages": [], "messages": [3]}',
]


def _read(bodies: Bodies, raw: bytes) -> object:
    try:
        return repr(bodies.read(raw))  # 1 is not True, and the order of keys counts
    except ValueError as error:
        return str(error)


@given(st.lists(PLAIN, max_size=3), st.data(), st.booleans())
def test_incremental_body_parser_equals_json_loads(rows: list[object], data: st.DataObject, as_ascii: bool) -> None:
    bodies = Bodies()
    for _ in range(4):
        first, last = ({key: data.draw(PLAIN) for key in data.draw(st.sampled_from(["", "a", "bc"]))} for _ in range(2))
        body = data.draw(st.sampled_from([{**first, "messages": rows, **last}, [first, {"messages": rows}]]))
        raw = json.dumps(body, ensure_ascii=as_ascii, separators=data.draw(SEPARATORS)).encode()
        cut = data.draw(st.integers(0, len(raw))) if data.draw(st.integers(0, 4)) == 0 else len(raw)
        assert _read(bodies, raw[:cut]) == _read_anew(raw[:cut])
        rows = [*rows[: data.draw(st.integers(0, len(rows)))], *data.draw(st.lists(PLAIN, max_size=2))]


@table("then", [*BROKEN, *('{"messages": [1' + end for end in BROKEN), "\ufeff{}"])
def test_invalid_json_after_a_valid_body_is_refused(then: str) -> None:
    bodies = Bodies()
    bodies.read(b'{"messages": [1]}')
    assert _read(bodies, then.encode()) == _read_anew(then.encode())
    assert bodies.read(b'{"messages": [1, 2]}') == {"messages": [1, 2]}


def test_grown_history_parses_only_new_messages() -> None:
    bodies, known = Bodies(), HistoryCache()
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "default": 1}}}
    rows = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
    made = [_asked(bodies, known, rows[:size], [tool]) for size in (1, 2)]
    assert made[1].messages[0] is made[0].messages[0]
    assert made[1].messages[1] == Message(Role.ASSISTANT, "Ho")
    assert made[1].tools[0] is made[0].tools[0]


def test_tools_differing_by_json_type_are_distinct() -> None:
    bodies, known = Bodies(), HistoryCache()
    tools = [
        {"type": "function", "function": {"name": "f", "parameters": {"default": default}}}
        for default in (1, True, 1.0)
    ]
    asked = [_asked(bodies, known, [{"role": "user", "content": "Hi"}], [tool]) for tool in tools]
    assert [each.tools[0].parameters for each in asked] == ['{"default": 1}', '{"default": true}', '{"default": 1.0}']


def _asked(bodies: Bodies, known: HistoryCache, rows: Sequence[object], tools: Sequence[object] = ()) -> Request:
    body = bodies.read(json.dumps({"messages": rows, "tools": tools}).encode())
    assert isinstance(body, dict)
    return read_chat(body, lambda kind: kind, known)[0]


def _read_anew(raw: bytes) -> object:
    try:
        return repr(json.loads(raw))
    except ValueError as error:
        return str(error)


def test_digest_covers_the_whole_body() -> None:
    bodies = Bodies()
    raws = [
        b'{"messages": [1]}',
        b'{"messages": [1, 2]}',
        b'{"messages": [1, 2] , "n": 1}',
        b'{"messages": [3]}',
        b"[]",
    ]
    for raw in raws:
        bodies.read(raw)
        assert bodies.digest == blake2b(raw, digest_size=16).digest()
