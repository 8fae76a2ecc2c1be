"""Real tokenizers with the markers of each family, and a short chat template in each family's way of writing."""

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import tokenizers
from chat import load_with

from slime_agent_openai.message import Message, Role, Tool
from slime_agent_openai.parsers.answer import Family, Reading
from slime_agent_openai.parsers.registry import OWN
from slime_core.data import HfTokenizer

BEGIN, END = "<|begin|>", "<|end|>"
SCHEMA = (
    '{"type": "object", "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}, '
    '"exact": {"type": "boolean"}, "ratio": {"type": "number"}, "where": {"type": "object"}, '
    '"tags": {"type": "array"}}}'
)
TOOLS = (Tool("look_up", "Looks up", SCHEMA), Tool("note", "Notes", SCHEMA))
CALLS = "{% for call in m.tool_calls or [] %}{% set f = call.function %}"
THINK = "{% if m.reasoning_content %}{{ '<think>\n' ~ m.reasoning_content ~ '\n</think>\n\n' }}{% endif %}"
MISTRAL_THINK = "{% if m.reasoning_content %}{{ '[THINK]' ~ m.reasoning_content ~ '[/THINK]' }}{% endif %}"
BODIES = {
    "hermes": THINK
    + "{{ m.content }}"
    + CALLS
    + """{{ '\n<tool_call>\n{"name": "' ~ f.name ~ '", "arguments": ' ~ f.arguments | tojson ~ '}\n</tool_call>' }}"""
    "{% endfor %}",
    "qwen3-coder": THINK
    + "{{ m.content }}"
    + CALLS
    + "{{ '\n<tool_call>\n<function=' ~ f.name ~ '>\n' }}{% for k, v in f.arguments.items() %}"
    "{{ '<parameter=' ~ k ~ '>\n' ~ (v if v is string else v | tojson) ~ '\n</parameter>\n' }}{% endfor %}"
    "{{ '</function>\n</tool_call>' }}{% endfor %}",
    "glm": THINK
    + "{{ m.content }}"
    + CALLS
    + "{{ '\n<tool_call>' ~ f.name ~ '\n' }}{% for k, v in f.arguments.items() %}"
    "{{ '<arg_key>' ~ k ~ '</arg_key>\n<arg_value>' ~ (v if v is string else v | tojson) ~ '</arg_value>\n' }}"
    "{% endfor %}{{ '</tool_call>' }}{% endfor %}",
    "deepseek": THINK
    + "{{ m.content }}{% if m.tool_calls %}{{ '<｜tool▁calls▁begin｜>' }}"
    + CALLS
    + "{{ '<｜tool▁call▁begin｜>' ~ f.name ~ '<｜tool▁sep｜>' ~ f.arguments | tojson ~ '<｜tool▁call▁end｜>' }}"
    "{% endfor %}{{ '<｜tool▁calls▁end｜>' }}{% endif %}",
    "deepseek of old": THINK
    + "{{ m.content }}{% if m.tool_calls %}{{ '<｜tool▁calls▁begin｜>' }}"
    + CALLS
    + "{{ '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' ~ f.name ~ '\n```json\n' ~ f.arguments | tojson ~ "
    "'\n```<｜tool▁call▁end｜>\n' }}{% endfor %}{{ '<｜tool▁calls▁end｜>' }}{% endif %}",
    "kimi-k2": THINK
    + "{{ m.content }}{% if m.tool_calls %}{{ '<|tool_calls_section_begin|>' }}"
    + CALLS
    + "{{ '<|tool_call_begin|>' ~ call.id ~ '<|tool_call_argument_begin|>' ~ f.arguments | tojson ~ "
    "'<|tool_call_end|>' }}{% endfor %}{{ '<|tool_calls_section_end|>' }}{% endif %}",
    "mistral": MISTRAL_THINK
    + "{{ m.content }}"
    + CALLS
    + "{{ '[TOOL_CALLS]' ~ f.name ~ '[ARGS]' ~ f.arguments | tojson }}{% endfor %}",
    "mistral with ids": MISTRAL_THINK
    + "{{ m.content }}"
    + CALLS
    + "{{ '[TOOL_CALLS]' ~ f.name ~ '[CALL_ID]' ~ 'D681PevKs' ~ '[ARGS]' ~ f.arguments | tojson }}{% endfor %}",
    "mistral of old": MISTRAL_THINK
    + "{{ m.content }}{% if m.tool_calls %}{{ '[TOOL_CALLS] [' }}"
    + CALLS
    + """{{ '{"name": "' ~ f.name ~ '", "arguments": ' ~ f.arguments | tojson ~ ', "id": "D681PevKs"}' }}"""
    "{{ '' if loop.last else ', ' }}{% endfor %}{{ ']' }}{% endif %}",
    "llama3": "{% if m.tool_calls and m.tool_calls | length > 1 %}{{ raise_exception('one call at most') }}{% endif %}"
    "{% if not m.tool_calls %}{{ m.content }}{% endif %}"
    + CALLS
    + """{{ '{"name": "' ~ f.name ~ '", "parameters": ' ~ f.arguments | tojson ~ '}' }}{% endfor %}""",
    "lfm2": r"""{%- macro quoted(v) %}{{ "'" ~ v | replace("\\", "\\\\") | replace("'", "\\'") """
    r"""| replace("\n", "\\n") | replace("\r", "\\r") ~ "'" }}{% endmacro %}"""
    + THINK
    + "{{ m.content }}{% if m.tool_calls %}{{ '<|tool_call_start|>[' }}"
    + CALLS
    + "{{ f.name ~ '(' }}{% for k, v in f.arguments.items() %}{{ k ~ '=' }}{% if v is string %}{{ quoted(v) }}"
    "{% elif v is mapping or v is iterable %}{{ v | tojson }}{% else %}{{ v | string }}{% endif %}"
    "{{ '' if loop.last else ', ' }}{% endfor %}{{ ')' if loop.last else '), ' }}{% endfor %}"
    "{{ ']<|tool_call_end|>' }}{% endif %}",
    "gemma4": """{%- macro value(v) %}{% if v is string %}{{ '<|"|>' ~ v ~ '<|"|>' }}{% elif v is mapping %}{{ '{' }}"""
    "{% for k, w in v.items() %}{{ k ~ ':' }}{{ value(w) }}{{ '' if loop.last else ',' }}{% endfor %}{{ '}' }}"
    "{% elif v is iterable %}{{ '[' }}{% for w in v %}{{ value(w) }}{{ '' if loop.last else ',' }}{% endfor %}"
    "{{ ']' }}{% else %}{{ v | tojson }}{% endif %}{% endmacro %}"
    "{% if m.reasoning_content %}{{ '<|channel>thought\n' ~ m.reasoning_content ~ '\n<channel|>' }}{% endif %}"
    "{{ m.content }}" + CALLS + "{{ '<|tool_call>call:' ~ f.name }}{{ value(f.arguments) }}{{ '<tool_call|>' }}"
    "{% endfor %}",
    "gpt-oss": "{% if m.tool_calls and m.tool_calls | length > 1 %}{{ raise_exception('one call at most') }}{% endif %}"
    "{% if m.reasoning_content %}{{ '<|channel|>analysis<|message|>' ~ m.reasoning_content }}"
    "{{ '<|end|><|start|>assistant' }}{% endif %}"
    "{% if not m.tool_calls %}{{ '<|channel|>final<|message|>' ~ m.content ~ '<|return|>' }}"
    "{% elif m.content %}{{ '<|channel|>commentary<|message|>' ~ m.content ~ '<|end|><|start|>assistant' }}{% endif %}"
    + CALLS
    + "{{ ' to=functions.' ~ f.name ~ '<|channel|>commentary json<|message|>' ~ f.arguments | tojson ~ '<|call|>' }}"
    "{% endfor %}",
    "plain": THINK + "{{ m.content }}",
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

    def reading(self, *, tools: tuple[Tool, ...] = TOOLS, thinks: bool = False) -> Reading:
        return Reading(self.tokenizer, self.family, numbered(), tools, thinks)

    def read(self, answer: str | Sequence[int], *, tools: tuple[Tool, ...] = TOOLS, thinks: bool = False) -> Reading:
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


def byte_level(markers: Iterable[str]) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600, show_progress=False, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()
    )
    lines = ['{"name": "look_up", "arguments": {"query": "the answer", "limit": 42}}', "<tool_call> </tool_call> den"]
    backend.train_from_iterator(lines * 3, trainer)
    backend.add_special_tokens([BEGIN, END])
    backend.add_tokens([tokenizers.AddedToken(marker, normalized=False) for marker in sorted(markers)])
    return backend


def tokenizer_of(body: str, markers: Iterable[str]) -> HfTokenizer:
    with tempfile.TemporaryDirectory() as folder:
        return load_with(Path(folder), byte_level(markers), TEMPLATE.replace("BODY", body), [END])


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
