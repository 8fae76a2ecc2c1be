"""Where requests go on in a forest; `test_invariants.py` plays sessions that do anything."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from slime_agent_openai.bridge import Bridge
from slime_agent_openai.errors import ApiError
from slime_agent_openai.forest import Forest, Node
from slime_agent_openai.message import Message, Request, Role, Tool, ToolCall
from slime_core.data import HfTokenizer
from slime_core.roles import FinishReason, GenerateOutput
from tests.tables import table

TOOLS = (Tool("add", "Adds.", '{"type": "object", "properties": {"a": {"type": "integer"}}}'),)
SYSTEM, ASKED, SURE = Message(Role.SYSTEM, "Count."), Message(Role.USER, "17 + 25?"), Message(Role.USER, "Sure?")
SUM = '{"b":25,   "a": 17}'


@dataclass(slots=True)
class Played:
    """A session whose model says what a test says."""

    forest: Forest
    tokenizer: HfTokenizer
    log: list[tuple[list[int], Node]] = field(default_factory=list)  # Prompts, and what was said then

    def turn(
        self,
        asked: Sequence[Message],
        text: str = "",
        reasoning: str = "",
        calls: int = 0,
        agent: str = "",
        tools: tuple[Tool, ...] = TOOLS,
    ) -> Message:
        plan = self.forest.plan(Request(tuple(asked), tools=tools, agent=agent))
        prompt, new = self.forest.prompt(plan, self.tokenizer.encode(plan.text))
        made = tuple(ToolCall(f"call_{len(self.log)}_{n}", "add", SUM) for n in range(calls))
        message = Message(Role.ASSISTANT, text, reasoning, made)
        written = "".join(f'\n<tool_call>\n{{"name": "add",  "arguments": {SUM}}}\n</tool_call>' for _ in made)
        thought = f"<think>\n{reasoning}\n</think>\n\n" if reasoning else ""
        tokens = self.tokenizer.encode(f"{thought}{text}{written}<|im_end|>")
        output = GenerateOutput(tokens, [-0.5] * len(tokens), FinishReason.STOP, 0)
        self.log.append((prompt, self.forest.commit(plan, new, message, output)))
        return message

    @property
    def trained(self) -> list[list[str]]:
        """What the model said in each chain, where it is trained on: with exactly the tokens that it saw."""
        found = []
        for chain in self.forest.chains():
            ids: list[int] = []
            for node, _ in chain:
                ids += node.ids
                assert all(prompt + node.ids == ids for prompt, said in self.log if said is node)
            found.append([node.message.text for node, is_trained in chain if is_trained])
        assert sum(map(len, found)) == len(self.log)
        return found


@pytest.fixture
def session(tokenizer: HfTokenizer, bridge: Bridge) -> Played:
    return Played(Forest(bridge), tokenizer)


def test_edited_assistant_message_forks(session: Played) -> None:
    begun = [ASKED, Message(Role.ASSISTANT, "Got it."), SURE]
    said = session.turn(begun, "42")
    session.turn([*begun, said, SURE], "Still 42")
    assert session.trained == [["42", "Still 42"]]
    assert (session.forest.counts.bridged, session.forest.counts.forks) == (1, 0)
    session.turn([*begun, Message(Role.ASSISTANT, "43"), SURE], "No")
    assert session.forest.counts.forks == 1
    assert len(session.trained) == 2


def test_sub_agents_have_separate_conversations(session: Played) -> None:
    for asked in ([ASKED], [ASKED, Message(Role.ASSISTANT, "42"), SURE]):
        for agent in ("", "first", "second"):
            session.turn(asked, "42", agent=agent)
    assert (session.forest.counts.bridged, session.forest.counts.forks) == (3, 0)
    assert len(session.trained) == 3


def test_changed_tools_start_a_new_chain(session: Played) -> None:
    said = session.turn([ASKED], "42")
    session.turn([ASKED, said, SURE], "Yes", tools=())
    assert len(session.trained) == 2


@table(
    "more, tail",
    [
        (Request((SURE,), after="resp_1"), ["Sure?"]),
        (Request((SURE,), after="resp_1", instructions="Count.", tools=TOOLS), ["Sure?"]),
        (Request((SURE,), after="resp_1", instructions="Be rude."), ["Be rude.", "17 + 25?", "42", "Sure?"]),
        (Request((SURE,), after="resp_1", tools=TOOLS * 2), ["Count.", "17 + 25?", "42", "Sure?"]),
    ],
)
def test_previous_response_id_continues_its_reply(
    tokenizer: HfTokenizer, bridge: Bridge, more: Request, tail: list[str]
) -> None:
    session = Played(Forest(bridge), tokenizer)
    session.turn([SYSTEM, ASKED], "42")
    session.forest.name(session.log[0][1], ["resp_1"])
    plan = session.forest.plan(more)
    assert [message.text for message in plan.tail] == tail
    assert plan.anchor is (session.log[0][1] if tail == ["Sure?"] else None)
    assert plan.tools == (more.tools or TOOLS)


def test_unknown_previous_response_id_is_refused(session: Played) -> None:
    with pytest.raises(ApiError, match="no reply of this session has the id 'resp_9'") as caught:
        session.forest.plan(Request((SURE,), after="resp_9"))
    assert (caught.value.status, caught.value.code) == (404, "previous_response_not_found")
