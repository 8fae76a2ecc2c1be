"""Reading: one answer's tokens, and the message that they are.

How they come in chunks changes nothing: what is told while the answer is made, put together, is the message.

Example:

    reading = Reading(tokenizer, family, new_id, request.tools, thinks=family.thinks(prompt))
    async for chunk in engine.stream(request):
        for delta in reading.feed(chunk.tokens): ...
    for delta in reading.end(): ...
    reading.message, reading.malformed, reading.reasoning_tokens
"""

from collections.abc import Iterable, Sequence

from slime_agent_openai.message import Message, Role, Tool, ToolCall
from slime_agent_openai.parsers.family import Family
from slime_agent_openai.parsers.pieces import Piece, Pieces
from slime_agent_openai.reply import ArgumentsDelta, CallBegun, Delta, ReasoningDelta, TextDelta
from slime_agent_openai.wires.wire import NewId
from slime_core.roles import Tokenizer


class Reading:
    """Reads one answer."""

    def __init__(
        self, tokenizer: Tokenizer, family: Family, new_id: NewId, tools: tuple[Tool, ...], thinks: bool
    ) -> None:
        """Nothing is read; `thinks`: the prompt ends within the reasoning."""
        self.reasoning_tokens = 0
        """Tokens up to the reasoning's end, its marker included; 0 if there is none."""
        self._pieces = Pieces(tokenizer, family.markers)
        self._parser = family.parser(new_id, tools, thinks)
        self._tokens = 0
        self._said: list[Delta] = []

    @property
    def malformed(self) -> int:
        """Calls that could not be read, or broke off, or whose arguments are not a JSON object."""
        return self._parser.malformed

    @property
    def message(self) -> Message:
        """What is read so far."""
        return folded(self._said)

    def feed(self, tokens: Sequence[int]) -> list[Delta]:
        """What more tokens tell."""
        told: list[Delta] = []
        for run in self._pieces.runs(tokens):
            thinks = self._parser.thinking
            told += self._read(self._pieces.feed_run(run))
            self._tokens += len(run)
            if thinks or self._parser.thinking:
                self.reasoning_tokens = self._tokens
        return self._joined(told)

    def end(self) -> list[Delta]:
        """What the end of the answer tells."""
        told = self._read(self._pieces.end())
        told += self._parser.end()
        return self._joined(told)

    def _read(self, pieces: Iterable[Piece]) -> list[Delta]:
        return [delta for piece in pieces for delta in self._parser.feed(piece)]

    def _joined(self, told: list[Delta]) -> list[Delta]:
        deltas = joined(told)
        self._said += deltas
        return deltas


def joined(deltas: Iterable[Delta]) -> list[Delta]:
    """The same with fewer deltas."""
    made: list[Delta] = []
    texts: list[str] = []
    for delta in deltas:
        last = made[-1] if made else None
        if last is None or isinstance(delta, CallBegun) or type(delta) is not type(last):
            _close(made, texts)
            made.append(delta)
            texts = [] if isinstance(delta, CallBegun) else [delta.text]
        else:
            texts.append(delta.text)
    _close(made, texts)
    return made


def _close(made: list[Delta], texts: list[str]) -> None:
    match made[-1:]:
        case [TextDelta()]:
            made[-1] = TextDelta("".join(texts))
        case [ReasoningDelta()]:
            made[-1] = ReasoningDelta("".join(texts))
        case [ArgumentsDelta(index=index)]:
            made[-1] = ArgumentsDelta(index, "".join(texts))


def folded(deltas: Iterable[Delta]) -> Message:
    """The message that the deltas tell."""
    text: list[str] = []
    reasoning: list[str] = []
    begun: list[CallBegun] = []
    arguments: list[list[str]] = []
    for delta in deltas:
        match delta:
            case TextDelta():
                text.append(delta.text)
            case ReasoningDelta():
                reasoning.append(delta.text)
            case CallBegun():
                begun.append(delta)
                arguments.append([])
            case ArgumentsDelta():
                arguments[delta.index].append(delta.text)
    calls = [ToolCall(call.id, call.name, "".join(parts)) for call, parts in zip(begun, arguments, strict=True)]
    return Message(Role.ASSISTANT, "".join(text), "".join(reasoning), tuple(calls))
