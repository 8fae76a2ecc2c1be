"""Dialogs: what models write in six turns, in two templates' ways, and what clients send back of it."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from slime_core.data import HfTokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "plugins/slime-agent-openai/tests"))
from chat import CHATML, load_chat  # the tests' tokenizer and template

TURNS = 6
STYLES = ("thinks", "text with calls", "two parallel calls", "varied arguments", "cut otherwise")
ECHOES = ("exact", "without reasoning", "arguments written anew", "without the text beside a call")
_AS_JSON = """<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>"""
_AS_XML = """<tool_call>
<function={{ call.function.name }}>
{% for k, v in call.function.arguments.items() %}<parameter={{ k }}>
{{ v if v is string else v | tojson }}
</parameter>
{% endfor %}</function>
</tool_call>"""
TEMPLATES = {"json": CHATML, "xml": CHATML.replace(_AS_JSON, _AS_XML)}
"""A template that writes calls as Qwen 3 does, and one that writes them as Qwen3-Coder does."""
_NUMBER, _TEXT = {"type": "integer"}, {"type": "string"}
TOOL: Mapping[str, object] = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks up.",
        "parameters": {"type": "object", "properties": {"query": _TEXT, "limit": _NUMBER}},
    },
}


def tokenizer_of(template: str, folder: Path) -> HfTokenizer:
    """The tests' tokenizer with one of the templates."""
    assert TEMPLATES["json"] != TEMPLATES["xml"], "the tests' template writes calls in another way"
    tokenizer: HfTokenizer = load_chat(folder, TEMPLATES[template])
    return tokenizer


def answers(tokenizer: HfTokenizer, template: str, style: str) -> list[list[int]]:
    """What the model makes in each turn, in tokens; the last one calls nothing."""
    made = []
    for turn in range(TURNS):
        text = _answer(template, style, turn) if turn < TURNS - 1 else "It is 813 km long."
        parts = _cut(text) if style == "cut otherwise" else [text]
        ids = [token for part in parts for token in tokenizer.encode(part)]
        made.append([*ids, next(iter(tokenizer.eos_token_ids))])
    return made


def _cut(text: str) -> list[str]:
    """Parts that no tokenizer would make of the text; markers stay whole, as models make them."""
    pieces = re.split(r"(</?(?:tool_call|think)>)", text)
    return [
        part
        for piece in pieces
        for part in ([piece] if piece.startswith("<") else [piece[at : at + 3] for at in range(0, len(piece), 3)])
    ]


def _answer(template: str, style: str, turn: int) -> str:
    calls = [_call(template, f"river {turn}", style == "varied arguments")]
    calls += [_call(template, f"city {turn}", varied=False)] if style == "two parallel calls" else []
    head = {"thinks": f"<think>\nTurn {turn} needs a river.\n</think>\n\n", "text with calls": "Looking it up.\n"}
    return head.get(style, "") + "\n".join(calls)


def _call(template: str, query: str, varied: bool) -> str:
    if template == "json":
        body = f'{{"limit":3,  "query" : "{query}"}}' if varied else f'{{"query": "{query}", "limit": 3}}'
        return f'<tool_call>\n{{"name": "look_up", "arguments": {body}}}\n</tool_call>'
    parameters = [f"<parameter=query>\n{query}\n</parameter>", "<parameter=limit>\n3\n</parameter>"]
    written = "\n".join(parameters[::-1] if varied else parameters)
    return f"<tool_call>\n<function=look_up>\n{written}\n</function>\n</tool_call>"


async def talk(http: aiohttp.ClientSession, url: str, key: str, echo: str) -> None:
    """One session of a client that sends back what it was told, in its way."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "How long is the river?"}]
    for _ in range(TURNS):
        body = {"model": "policy", "messages": messages, "tools": [TOOL]}
        headers = {"Authorization": f"Bearer {key}"}
        async with http.post(f"{url}/v1/chat/completions", json=body, headers=headers) as answer:
            raw = await answer.read()
            if answer.status != 200:
                raise SystemExit(f"{url} answered {answer.status}: {raw[:300]!r}")
        said = json.loads(raw)["choices"][0]["message"]
        calls = said.get("tool_calls") or []
        messages.append(_echoed(said, echo))
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "813 km"} for call in calls]


def _echoed(said: Mapping[str, Any], echo: str) -> dict[str, Any]:
    """The reply as a client sends it back."""
    kept = {key: value for key, value in said.items() if value is not None}
    if echo == "without reasoning":
        kept.pop("reasoning_content", None)
    if echo == "without the text beside a call" and kept.get("tool_calls"):
        kept["content"] = None
    if echo == "arguments written anew":
        kept["tool_calls"] = [_anew(call) for call in kept.get("tool_calls", [])]
        if not kept["tool_calls"]:
            del kept["tool_calls"]
    return kept


def _anew(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call["function"])
    function["arguments"] = json.dumps(json.loads(function["arguments"]), sort_keys=True, separators=(",", ":"))
    return {**call, "function": function}


def share(trained: int, generated: Sequence[Sequence[int]]) -> float:
    """Tokens that carry loss, over all that the model made."""
    return trained / sum(map(len, generated))
