"""Clients: sessions as agents have them, drawn at random, with the engine's own log to check them against.

played = data.draw(...)            # moves
session = Played(forest, tokenizer); session.play(moves)
session.log                        # what the engine saw and made, turn by turn
"""

import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from slime_agent_openai.forest import Forest, Node
from slime_agent_openai.message import Message, Request, Role, Tool, ToolCall
from slime_core.data import HfTokenizer
from slime_core.roles import FinishReason, GenerateOutput

TOOLS = (Tool("add", "Adds.", '{"type": "object", "properties": {"a": {"type": "integer"}}}'),)


class Echo(enum.Enum):
    """How a client sends a reply back."""

    EXACT = "exact"
    NO_REASONING = "no reasoning"
    OTHER_JSON = "arguments written anew"
    CALLS_ALONE = "without reasoning and text, where it has calls"


class Move(enum.Enum):
    """What a client does next."""

    GO_ON = "goes on from the last reply"
    EDIT = "goes on from the last reply, whose text it changed"
    AGAIN = "asks the same again, on purpose"
    BACK = "goes on from an earlier reply"
    ANEW = "begins another conversation"


@dataclass(frozen=True, slots=True)
class Said:
    """What the model says in a turn."""

    reasoning: str = ""
    text: str = ""
    calls: int = 0
    arguments: str = '{"a": 17, "b": 25}'


@dataclass(slots=True)
class Turn:
    """One turn, as the engine knows it."""

    prompt: list[int]
    output: list[int]
    node: Node
    asked: tuple[Message, ...]


@dataclass(slots=True)
class Played:
    """A session."""

    forest: Forest
    tokenizer: HfTokenizer
    echo: Echo = Echo.EXACT
    tools: tuple[Tool, ...] = TOOLS
    log: list[Turn] = field(default_factory=list)
    _ids: int = 0

    def play(self, moves: Sequence[tuple[Move, Said]]) -> None:
        for move, said in moves:
            self.turn(self._asked(move), said)

    def turn(self, messages: tuple[Message, ...], said: Said, agent: str = "") -> Turn:
        plan = self.forest.plan(Request(messages, tools=self.tools, agent=agent))
        prompt, new = self.forest.prompt(plan, self.tokenizer.encode(plan.text))
        message, tokens = self._reply(said)
        output = GenerateOutput(tokens, [-0.5] * len(tokens), FinishReason.STOP, len(self.log))
        node = self.forest.commit(plan, new, message, output)
        self.log.append(Turn(prompt, tokens, node, messages))
        return self.log[-1]

    def _reply(self, said: Said) -> tuple[Message, list[int]]:
        self._ids += 1
        calls = tuple(ToolCall(f"call_{self._ids}_{n}", "add", said.arguments) for n in range(said.calls))
        text = f"<think>\n{said.reasoning}\n</think>\n\n" if said.reasoning else ""
        text += said.text
        for call in calls:
            text += f'\n<tool_call>\n{{"name": "add",  "arguments": {call.arguments}}}\n</tool_call>'
        message = Message(Role.ASSISTANT, said.text, said.reasoning, calls)
        return message, self.tokenizer.encode(f"{text}<|im_end|>")

    def _asked(self, move: Move) -> tuple[Message, ...]:
        if not self.log or move is Move.ANEW:
            return (Message(Role.SYSTEM, "Count."), Message(Role.USER, f"Question {len(self.log)}"))
        last = self.log[-1]
        if move is Move.AGAIN:
            return last.asked
        if move is Move.BACK:
            last = self.log[len(self.log) // 2]
        reply = echoed(last.node.message, self.echo)
        if move is Move.EDIT:
            reply = replace(reply, text=f"{reply.text} (edited)")
        return (*last.asked, reply, *self._next(reply))

    def _next(self, reply: Message) -> list[Message]:
        if reply.calls:
            return [Message(Role.TOOL, "42\n", answers=call.id) for call in reply.calls]
        return [Message(Role.USER, "And then?")]


def echoed(reply: Message, how: Echo) -> Message:
    """A reply as a client sends it back."""
    match how:
        case Echo.NO_REASONING:
            return replace(reply, reasoning="")
        case Echo.OTHER_JSON:
            calls = tuple(replace(call, arguments=_written_anew(call.arguments)) for call in reply.calls)
            return replace(reply, calls=calls)
        case Echo.CALLS_ALONE if reply.calls:
            return replace(reply, reasoning="", text="")
    return reply


def _written_anew(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), indent=1, sort_keys=True)
    except ValueError:
        return arguments
