"""Real tokenizers with the markers of each family, and a short chat template in each family's way of writing."""

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import tokenizers
from chat import byte_level, load_with

from slime_agent_openai.message import Message, Role, Tool
from slime_agent_openai.parsers.answer import AnswerReader, Family
from slime_agent_openai.parsers.families import OWN
from slime_core.data import HfTokenizer

BEGIN, END = "<|begin|>", "<|end|>"
SCHEMA = (
    '{"type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}, '
    '"exact": {"type": "boolean"}, "ratio": {"type": "number"}, "where": {"type": "object"}, '
    '"tags": {"type": "array"}}}'
)
TOOLS = (Tool("look_up", "Looks up", SCHEMA), Tool("note", "Notes", SCHEMA))
BODIES = {
    path.stem.replace("-of-", " of ").replace("-with-", " with "): path.read_text("utf-8").removesuffix("\n")
    for path in sorted(Path(__file__).with_name("templates").glob("*.jinja"), key=lambda path: path.stem)
}
TEMPLATE = (
    "{% for m in messages %}{{ '" + BEGIN + "' ~ m.role ~ '\n' }}{% if m.role == 'assistant' %}BODY{% else %}"
    "{{ m.content }}{% endif %}{{ '" + END + "' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '" + BEGIN + "assistant\n' }}{% endif %}"
)


@dataclass(frozen=True)
class Written:
    """How one family's models write, and with which tokens."""

    family: Family
    tokenizer: HfTokenizer

    def ids(self, message: Message) -> list[int]:
        """What the model would have made for this message, with its end."""
        asked = Message(Role.USER, "?").for_template
        prompt = self.tokenizer.apply_chat_template([asked])
        whole = self.tokenizer.apply_chat_template([asked, message.for_template], add_generation_prompt=False)
        assert whole.startswith(prompt)
        return self.tokenizer.encode(whole[len(prompt) :])

    def reading(self, *, tools: tuple[Tool, ...] = TOOLS, thinks: bool = False) -> AnswerReader:
        return AnswerReader(self.tokenizer, self.family, numbered(), tools, thinks)

    def read(
        self, answer: str | Sequence[int], *, tools: tuple[Tool, ...] = TOOLS, thinks: bool = False
    ) -> AnswerReader:
        """A whole answer, in one piece."""
        reading = self.reading(tools=tools, thinks=thinks)
        reading.feed(self.tokenizer.encode(answer) if isinstance(answer, str) else answer)
        reading.end()
        return reading


class numbered:  # noqa: N801  # a function with a memory
    def __init__(self) -> None:
        self.made = 0

    def __call__(self, kind: str) -> str:
        self.made += 1
        return f"{kind}_{self.made}"


def tokenizer_of(body: str, markers: Iterable[str]) -> HfTokenizer:
    lines = ['{"name": "look_up", "arguments": {"query": "the answer", "limit": 42}}', "<tool_call> </tool_call> den"]
    backend = byte_level(lines * 3, 600)
    backend.add_special_tokens([BEGIN, END])
    backend.add_tokens([tokenizers.AddedToken(marker, normalized=False) for marker in sorted(markers)])
    with tempfile.TemporaryDirectory() as folder:
        return load_with(Path(folder), backend, TEMPLATE.replace("BODY", body), [END])


class Ways(dict[str, Written]):
    """All of them, too many to be shown when a test fails."""

    def __repr__(self) -> str:
        return "the ways"


@pytest.fixture(scope="session")
def written() -> Ways:
    """By the way of writing: each with tokens for its markers, and each "spelled", without any; one has some."""
    made = Ways()
    for way, body in BODIES.items():
        family = OWN[way.partition(" ")[0]]
        made[way] = Written(family, tokenizer_of(body, family.markers))
        made[f"{way}, spelled"] = Written(family, tokenizer_of(body, ()))
    some = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
    body = BODIES["qwen3-coder"]
    made["qwen3-coder, as released"] = Written(OWN["qwen3-coder"], tokenizer_of(body, some))
    return made
