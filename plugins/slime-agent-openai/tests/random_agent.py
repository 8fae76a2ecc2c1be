"""An agent that acts at random through any client, and records its requests.

It continues from any earlier reply, echoes it in one of several styles or by its id, edits it, repeats requests, sends
several at once, has sub-agents, changes its tools, and loses connections.
"""

import asyncio
import enum
import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from random_engine import Made, RandomEngine

from slime_agent_openai.errors import ApiError
from slime_agent_openai.message import Message, Role, Tool

FIND = Tool("find", "Finds.", '{"type": "object", "properties": {"b": {"type": "string"}}}')
ADD = Tool("add", "Adds.", '{"type": "object", "properties": {"a": {"type": "integer"}}}')
OFFERS = ((ADD, FIND), (ADD, FIND), (ADD, FIND), (ADD,), ())
SYSTEMS = ("", "", "Count.", "Be brief, größer.")
FOREIGN = "somebody else said this"  # What is in all words of an assistant that no engine made
ENDS = {"turn_limit", "context_length_exceeded", "interrupted"}
"""Codes of errors after which a session answers nothing more."""


class Echo(enum.Enum):
    """How a client sends a reply back."""

    EXACT = "exact"
    NO_REASONING = "no reasoning"
    OTHER_JSON = "arguments written anew"
    CALLS_ALONE = "without reasoning and text, where it has calls"


def echoed(reply: Message, how: Echo, draw: random.Random) -> Message:
    """A reply as a client sends it back."""
    match how:
        case Echo.NO_REASONING:
            return replace(reply, reasoning="")
        case Echo.OTHER_JSON:
            return replace(
                reply, calls=tuple(replace(each, arguments=_anew(each.arguments, draw)) for each in reply.calls)
            )
        case Echo.CALLS_ALONE if reply.calls:
            return replace(reply, reasoning="", text="")
    return reply


def _anew(arguments: str, draw: random.Random) -> str:
    """JSON as another library writes it."""
    indent, sort_keys = draw.choice((None, 1)), draw.random() < 0.5
    return json.dumps(json.loads(arguments), indent=indent, sort_keys=sort_keys, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    messages: tuple[Message, ...]  # The whole conversation, as its client has it
    tools: tuple[Tool, ...]
    agent: str = ""
    max_tokens: int | None = None
    base: "Turn | None" = None  # The reply that it goes on from
    by_id: bool = False  # Whether it names that one, instead of the conversation
    is_edited: bool = False  # Whether the client changed something in what came before
    fault: str = ""  # What happens to it on its way

    @property
    def new(self) -> tuple[Message, ...]:
        """What came since the reply that it goes on from."""
        return self.messages[len(self.base.asked.messages) + 1 :] if self.base is not None else self.messages


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    message: Message
    handle: str  # Its id
    made: Made | None = None  # The engine's, where who carries requests knows


@dataclass(eq=False, slots=True)
class Turn:
    """A request that was answered."""

    asked: Asked
    answer: Answer


class Client(Protocol):
    """Who takes requests to the session."""

    faults: Sequence[str]  # What can happen to one on its way

    async def ask(self, asked: Asked) -> Answer:
        """Ask.

        Raises:
            ApiError: it was refused.
        """
        ...


@dataclass(slots=True)
class Agent:
    """One session's."""

    client: Client
    engine: RandomEngine
    draw: random.Random
    order: random.Random  # In which order requests of one time are begun
    luck: random.Random  # What happens to requests on their way
    echo: Echo = Echo.EXACT
    turns: list[Turn] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)  # What it did, by name
    fault_rate: float = 0.1  # Of requests, those that something happens to
    cut_rate: float = 0.1  # Of requests, those that allow no more than some tokens

    async def play(self, turns: int) -> None:
        """Take so many turns, or end with the session."""
        while len(self.turns) < turns:
            batch = self._batch()
            order = list(range(len(batch)))
            self.order.shuffle(order)
            asking = {place: asyncio.create_task(self._turn(batch[place], alone=len(batch) == 1)) for place in order}
            await asyncio.wait(asking.values())
            made = [asking[place].result() for place in range(len(batch))]
            if None in made:
                return
            self.turns += _sorted([turn for turn in made if turn is not None], are_unlike=self.engine.is_unlike)

    async def _turn(self, asked: Asked, *, alone: bool) -> Turn | None:
        """One of them; None: the session has ended."""
        try:
            answer = await self.client.ask(asked)
        except ApiError as error:
            if error.code not in ENDS:
                raise
            self.counts[error.code] += 1
            return None
        if alone and answer.made is None:
            answer = replace(answer, made=self.engine.log[-1])
        return Turn(asked, answer)

    def _batch(self) -> list[Asked]:
        """What is asked at once."""
        kind = self.draw.random()
        if kind < 0.06:
            self.counts["votes"] += 1
            return [self._next()] * self.draw.randint(2, 4)  # the same to the byte
        if kind < 0.12:
            self.counts["at once"] += 1
            return [self._next() for _ in range(self.draw.randint(2, 3))]
        asked = self._next()
        if self.luck.random() < self.fault_rate:
            fault = self.luck.choice(self.client.faults)
            self.counts[fault] += 1
            asked = replace(asked, fault=fault)
        return [asked]

    def _next(self) -> Asked:
        """The next request."""
        kind = self.draw.random()
        if not self.turns or kind < 0.05:
            return self._anew("")
        if kind < 0.1:
            self.counts["sub-agents"] += 1
            return self._anew(self.draw.choice(("first", "second")))
        if kind < 0.14:
            self.counts["asked again"] += 1
            return replace(self.turns[-1].asked, fault="")
        if kind < 0.24:
            self.counts["gone back"] += 1
            return self._after(self.draw.choice(self.turns))
        return self._after(self.turns[-1])

    def _anew(self, agent: str) -> Asked:
        """Another conversation."""
        said = self.draw.choice(SYSTEMS)
        messages = [Message(Role.SYSTEM, said)] if said else []
        messages.append(Message(Role.USER, f"Question {len(self.turns)}: what is 17 + 25?"))
        if self.draw.random() < 0.05:  # an example that no model of ours wrote
            messages += [Message(Role.ASSISTANT, FOREIGN), Message(Role.USER, "And now you.")]
        return Asked(tuple(messages), self.draw.choice(OFFERS), agent, self._most())

    def _after(self, base: Turn) -> Asked:
        """A request that goes on from a reply."""
        draw, before, reply = self.draw, base.asked, base.answer.message
        tools, is_edited, by_id = before.tools, False, draw.random() < 0.1
        if not by_id:
            echo = self.echo if draw.random() < 0.8 else draw.choice(list(Echo))
            reply = echoed(reply, echo, draw)
            is_edited = draw.random() < 0.05
        if is_edited:
            self.counts["edits"] += 1
            reply = _edited(reply, draw)
        if not by_id and draw.random() < 0.02:  # by id none are those of before
            tools = draw.choice(OFFERS)
        messages = (*before.messages, reply, *self._follows(reply))
        return Asked(messages, tools, before.agent, self._most(), base, by_id, is_edited)

    def _follows(self, reply: Message) -> Iterable[Message]:
        """What is said after a reply."""
        results = [Message(Role.TOOL, self.draw.choice(("42", "42\n", "")), answers=call.id) for call in reply.calls]
        if self.draw.random() < 0.1:
            self.draw.shuffle(results)
        yield from results
        if not results or self.draw.random() < 0.1:
            yield Message(Role.USER, self.draw.choice(("And then?", "Sure?\n", "größer \U0001f30a")))

    def _most(self) -> int | None:
        if self.draw.random() < self.cut_rate:
            self.counts["cut"] += 1
            return self.draw.randint(1, 12)
        return None


def _sorted(turns: Sequence[Turn], *, are_unlike: bool) -> list[Turn]:
    """Turns of one time, of which some asked the same: which answer is whose nobody says, so they are exchanged.

    Those that ask the same in other words are among them where no two replies are alike, so that it is the same.
    """
    alike: dict[object, list[Answer]] = {}
    names = [
        (made.prompt, turn.asked.agent) if are_unlike and (made := turn.answer.made) else turn.asked for turn in turns
    ]
    for name, turn in zip(names, turns, strict=True):
        alike.setdefault(name, []).append(turn.answer)
    for answers in alike.values():
        answers.sort(key=lambda answer: _content(answer.message), reverse=True)
    return [replace(turn, answer=alike[name].pop()) for name, turn in zip(names, turns, strict=True)]


def _edited(reply: Message, draw: random.Random) -> Message:
    """With other words, or other arguments."""
    if reply.calls and draw.random() < 0.5:
        first, *others = reply.calls
        return replace(reply, calls=(replace(first, arguments=f'{{"a": "{FOREIGN}"}}'), *others))
    return replace(reply, text=f"{reply.text} {FOREIGN}")


def _content(message: Message) -> tuple[object, ...]:
    return message.text, message.reasoning, [(call.name, call.arguments) for call in message.calls]
