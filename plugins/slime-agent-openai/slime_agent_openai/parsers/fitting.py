"""Fitting: which family reads what a model's chat template writes.

Nobody looks into the template or at the model's name: it is given calls of tools, what it makes of them is encoded,
and the family that reads the same calls from the tokens is the one.

Example:

    family = fitting(tokenizer, families().values())        # None: say `none_fits(...)`
    misfit(tokenizer, OWN["glm"], families().values())      # None: it fits, or nobody knows
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from slime_agent_openai.message import Message, Role, Tool, ToolCall
from slime_agent_openai.parsers.family import Family
from slime_agent_openai.parsers.reading import Reading
from slime_core.errors import DataError, ModelError
from slime_core.roles import Tokenizer
from slime_core.sample import Json

TOOLS = (
    Tool(
        "look_up",
        "Looks something up",
        json.dumps(
            {
                "type": "object",
                "properties": {
                    "query": {"type": "string"},
                    "limit": {"type": "integer"},
                    "exact": {"type": "boolean"},
                    "where": {"type": "object"},
                },
            }
        ),
    ),
    Tool("note", "Notes something", '{"type": "object", "properties": {"text": {"type": "string"}}}'),
)
_ARGUMENTS: tuple[dict[str, Json], ...] = (
    {"query": "42", "limit": 42, "exact": True, "where": {"tags": ["ü", "日本"], "deep": {"n": None}}},
    {"text": 'A "quoted" word — 🙂'},
)


def fitting(tokenizer: Tokenizer, among: Iterable[Family]) -> Family | None:
    """The first family that reads back, from its tokens, what the chat template writes for calls of tools."""
    known = tuple(among)
    for trial in _trials():
        written = _written(tokenizer, trial)
        if written is not None:
            fits = (family for family in known if _reads(tokenizer, family, trial, written))
            if (found := next(fits, None)) is not None:
                return found
    return None


@dataclass(frozen=True, slots=True)
class Misfit:
    """A call that one family does not read, and another one does."""

    written: str
    """What the chat template wrote."""
    family: Family
    """The one that reads it."""


def misfit(tokenizer: Tokenizer, family: Family, among: Iterable[Family]) -> Misfit | None:
    """What shows that a family does not read what the chat template writes for calls of tools.

    None: it reads some, or none of them all reads any, so that nobody knows what the model writes.
    """
    others, found = tuple(among), None
    for trial in _trials():
        if (written := _written(tokenizer, trial)) is None:
            continue
        if _reads(tokenizer, family, trial, written):
            return None
        reader = next((each for each in others if _reads(tokenizer, each, trial, written)), None)
        if reader is not None and found is None:
            found = Misfit(tokenizer.decode(written.tokens, skip_special_tokens=False), reader)
    return found


@dataclass(frozen=True, slots=True)
class _Trial:
    """A way of giving calls to a template: some take two, some take one, and some want arguments as text."""

    calls: tuple[ToolCall, ...]
    as_text: bool
    empty: Json

    @property
    def rendered(self) -> dict[str, Json]:
        """The message as this trial gives it."""
        calls: list[Json] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": call.arguments if self.as_text else json.loads(call.arguments),
                },
            }
            for call in self.calls
        ]
        return {"role": "assistant", "content": self.empty, "tool_calls": calls}


def _trials() -> Iterator[_Trial]:
    for many in (2, 1):
        for ids in (("functions.look_up:0", "functions.note:1"), ("call00000", "call00001")):  # some templates check
            calls = tuple(
                ToolCall(call_id, tool.name, json.dumps(arguments, ensure_ascii=False))
                for call_id, tool, arguments in list(zip(ids, TOOLS, _ARGUMENTS, strict=True))[:many]
            )
            for as_text in (False, True):
                empty: Json
                for empty in ("", None):
                    yield _Trial(calls, as_text, empty)


@dataclass(frozen=True, slots=True)
class _Written:
    """What the template wrote for the assistant."""

    tokens: list[int]
    after: str


def _written(tokenizer: Tokenizer, trial: _Trial) -> _Written | None:
    """The assistant's turn: what comes after all that is the same as in the prompt for it; None: refused."""
    asked = Message(Role.USER, "Look it up and note it.").for_template
    tools: list[Json] = [tool.for_template for tool in TOOLS]
    try:
        prompt = tokenizer.encode(tokenizer.apply_chat_template([asked], tools))
        whole = tokenizer.encode(
            tokenizer.apply_chat_template([asked, trial.rendered], tools, add_generation_prompt=False)
        )
    except (DataError, ModelError):
        return None
    same = next(
        (at for at, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b), min(len(prompt), len(whole))
    )
    tokens = whole[same:]
    ends = [at for at, token in enumerate(tokens) if token in tokenizer.eos_token_ids]
    after = tokenizer.decode(whole[:same], skip_special_tokens=False)
    return _Written(tokens[: ends[0]] if ends else tokens, after)


def _reads(tokenizer: Tokenizer, family: Family, trial: _Trial, written: _Written) -> bool:
    reading = Reading(tokenizer, family, lambda kind: kind, TOOLS, family.thinks(written.after))
    reading.feed(written.tokens)
    reading.end()
    calls = reading.message.calls
    return (
        not reading.malformed
        and len(calls) == len(trial.calls)
        and all(call.means(wanted) for call, wanted in zip(calls, trial.calls, strict=True))
    )
