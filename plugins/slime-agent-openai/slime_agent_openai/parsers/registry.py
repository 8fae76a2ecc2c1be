"""Families by name, with other packages' first, and the search for the family that reads a chat template's calls.

`find_family` ignores the template's text and the model's name. It renders tool calls with the template, encodes the
text, and returns the first family that reads the same calls back.

Example:

    family = family_named("hermes")
    family = find_family(tokenizer, families().values())        # None: raise with `no_parser_message(...)`
    misfit(tokenizer, OWN["glm"], families().values())      # None: it fits, or no family does
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from slime_agent_openai.errors import IN_SECTION
from slime_agent_openai.message import Message, Role, Tool, ToolCall
from slime_agent_openai.parsers.answer import AnswerReader, Family
from slime_agent_openai.parsers.families import OWN
from slime_core.errors import DataError, ModelError, PluginError, UnknownName, did_you_mean
from slime_core.roles import Tokenizer
from slime_core.sample import Json

GROUP = "slime.agent_parsers"  # Entry points of other packages' families: name = "module:FAMILY"


def names() -> list[str]:
    """Every name that `family_named` knows."""
    return sorted({*OWN, *entry_points(group=GROUP).names})


def families() -> Mapping[str, Family]:
    """Every family; other packages' families come first, sorted by name."""
    others = {entry.name: _load(entry) for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name)}
    return others | {name: family for name, family in OWN.items() if name not in others}


def family_named(name: str) -> Family:
    """The family with this name."""
    for entry in entry_points(group=GROUP, name=name):
        return _load(entry)
    if name in OWN:
        return OWN[name]
    raise UnknownName(unknown_message(name))


def unknown_message(name: str) -> str:
    """Error message for a name without a family."""
    return f"no agent parser {name!r}.{did_you_mean(name, names())} Use one of {', '.join(names())}."


def no_parser_message(template: str, parser: str) -> str:
    """Error message if tools are offered and the parser reads no calls; `template`: the model of the chat template."""
    return (
        f"an agent offers tools, but {parser!r}, the agent parser for the chat template of {template}, reads no tool "
        'calls, so every call would be lost. With parser = "auto", no parser reads the calls that the template writes. '
        f'{IN_SECTION.capitalize()}, set the parser that reads the model\'s calls, for example parser = "hermes". '
        f"{list_parsers()}"
    )


def wrong_parser_message(template: str, parser: str, other: str, written: str) -> str:
    """Error message if tools are offered and the parser cannot read the template's calls."""
    return (
        f'an agent offers tools, but parser = "{parser}" does not read the calls that the chat template of {template} '
        f'writes, so every call would be lost. It writes {written.strip()!r:.200}, which parser = "{other}" reads. '
        f'Set that {IN_SECTION}, or leave parser at "auto", which finds it.'
    )


def list_parsers() -> str:
    """The families that read calls, one per line, and how to add one."""
    known = "\n".join(f"  {name}: {family.summary}" for name, family in families().items() if family.reads_calls)
    return f"Parsers that read tool calls:\n{known}\nA package can add one in the entry-point group {GROUP}."


def _load(entry: EntryPoint) -> Family:
    owner = f"agent parser {entry.name!r} of {entry.dist.name if entry.dist else 'a package'} ({entry.value})"
    try:
        family = entry.load()
    except Exception as error:  # errors of another package's import
        raise PluginError(f"{owner} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(family, Family):
        raise PluginError(f"{owner} is a {type(family).__name__}, expected a slime_agent_openai.parsers.answer.Family")
    return family


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


def find_family(tokenizer: Tokenizer, among: Iterable[Family]) -> Family | None:
    """The first family that reads back, from tokens, the tool calls that the chat template writes."""
    known = tuple(among)
    for trial in _trials():
        rendered = _render(tokenizer, trial)
        if rendered is not None:
            fits = (family for family in known if _reads_back(tokenizer, family, trial, rendered))
            if (found := next(fits, None)) is not None:
                return found
    return None


@dataclass(frozen=True, slots=True)
class Misfit:
    """A call that one family cannot read and another family can."""

    written: str  # The text of the chat template
    family: Family  # The family that reads it


def misfit(tokenizer: Tokenizer, family: Family, among: Iterable[Family]) -> Misfit | None:
    """Evidence that a family cannot read the chat template's tool calls.

    None: the family reads some of them, or no family reads any, so the model's format is unknown.
    """
    others, found = tuple(among), None
    for trial in _trials():
        if (rendered := _render(tokenizer, trial)) is None:
            continue
        if _reads_back(tokenizer, family, trial, rendered):
            return None
        reader = next((each for each in others if _reads_back(tokenizer, each, trial, rendered)), None)
        if reader is not None and found is None:
            found = Misfit(tokenizer.decode(rendered.tokens, skip_special_tokens=False), reader)
    return found


@dataclass(frozen=True, slots=True)
class _Trial:
    """A set of calls for a template: some templates take two calls, some one, and some want arguments as text."""

    calls: tuple[ToolCall, ...]
    as_text: bool
    empty: Json

    @property
    def rendered(self) -> dict[str, Json]:
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
        for ids in (("functions.look_up:0", "functions.note:1"), ("call00000", "call00001")):  # some check ids
            calls = tuple(
                ToolCall(call_id, tool.name, json.dumps(arguments, ensure_ascii=False))
                for call_id, tool, arguments in list(zip(ids, TOOLS, _ARGUMENTS, strict=True))[:many]
            )
            for as_text in (False, True):
                empty: Json
                for empty in ("", None):
                    yield _Trial(calls, as_text, empty)


@dataclass(frozen=True, slots=True)
class _Rendered:
    """The text that the template wrote for the assistant."""

    tokens: list[int]
    after: str


def _render(tokenizer: Tokenizer, trial: _Trial) -> _Rendered | None:
    """The assistant's turn: the text behind what it has in common with its prompt; None: the template refused it."""
    question = Message(Role.USER, "Look it up and note it.").for_template
    tools: list[Json] = [tool.for_template for tool in TOOLS]
    try:
        prompt = tokenizer.encode(tokenizer.apply_chat_template([question], tools))
        whole = tokenizer.encode(
            tokenizer.apply_chat_template([question, trial.rendered], tools, add_generation_prompt=False)
        )
    except (DataError, ModelError):
        return None
    common = next(
        (at for at, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b), min(len(prompt), len(whole))
    )
    tokens = whole[common:]
    ends = [at for at, token in enumerate(tokens) if token in tokenizer.eos_token_ids]
    after = tokenizer.decode(whole[:common], skip_special_tokens=False)
    return _Rendered(tokens[: ends[0]] if ends else tokens, after)


def _reads_back(tokenizer: Tokenizer, family: Family, trial: _Trial, rendered: _Rendered) -> bool:
    reading = AnswerReader(tokenizer, family, lambda kind: kind, TOOLS, family.thinks(rendered.after))
    reading.feed(rendered.tokens)
    reading.end()
    calls = reading.message.calls
    return (
        not reading.malformed
        and len(calls) == len(trial.calls)
        and all(call.matches(wanted) for call, wanted in zip(calls, trial.calls, strict=True))
    )
