from array import array
from hashlib import blake2b
from pathlib import Path

import pytest
from chat import MOVES_TOOLS, load_chat
from clients import TOOLS, Echo, Move, Played, Said
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slime_agent_openai.bridge import Bridge
from slime_agent_openai.errors import ApiError
from slime_agent_openai.forest import Forest
from slime_agent_openai.message import Message, Request, Role
from slime_core.data import HfTokenizer
from tests.tables import table

SAID = st.builds(
    Said,
    reasoning=st.sampled_from(["", "17 + 25 = 42", "Hm.\n\nTwo lines"]),
    text=st.sampled_from(["", "Let me see.", "It is 42.\n", "Größe \U0001f30a"]),
    calls=st.integers(0, 2),
    arguments=st.sampled_from(['{"a": 17, "b": 25}', '{"b":25,"a":17}', "{ }", '{"a": "x', '{"a": "Zürich"}']),
)
MOVES = st.lists(st.tuples(st.sampled_from(Move), SAID), min_size=1, max_size=8)
SPEAKS = [
    Said(text="Adding.", calls=1),
    Said(reasoning="r", calls=2),
    Said(reasoning="It is.", text="Once more", calls=1, arguments='{"b":25,   "a": 17}'),
    Said(text="42"),
]


@pytest.fixture
def session(tokenizer: HfTokenizer, bridge: Bridge) -> Played:
    return Played(Forest(bridge), tokenizer)


def require_exact(session: Played) -> None:
    """What is trained on is what the engine saw and made, each token of it once."""
    trained = []
    for chain in session.forest.chains():
        ids: list[int] = []
        for node, is_trained in chain:
            ids += node.ids
            turns = [turn for turn in session.log if turn.node is node]
            assert bool(turns) == (node.output is not None) == (node.hashed is not None)
            assert all(turn.prompt + turn.output == ids for turn in turns)
            if node.hashed is not None:
                assert node.hashed.digest() == blake2b(array("q", ids), digest_size=8).digest()
            trained += [node] if is_trained else []
    assert len(trained) == len(session.log)
    assert {id(node) for node in trained} == {id(turn.node) for turn in session.log}


@table("echo", Echo)
def test_a_conversation_is_one_chain_however_its_client_writes_it_down(
    tokenizer: HfTokenizer, bridge: Bridge, echo: Echo
) -> None:
    session = Played(Forest(bridge), tokenizer, echo)
    session.play([(Move.GO_ON, said) for said in SPEAKS])
    (chain,) = session.forest.chains()
    assert sum(is_trained for _, is_trained in chain) == len(SPEAKS)
    assert (session.forest.counts.bridged, session.forest.counts.forks) == (len(SPEAKS) - 1, 0)
    for turn, following in zip(session.log, session.log[1:], strict=False):
        assert following.prompt[: len(turn.prompt + turn.output)] == turn.prompt + turn.output
    require_exact(session)


def test_words_that_a_client_begins_with_are_no_fork(session: Played) -> None:
    begun = (
        Message(Role.USER, "Today is Monday."),
        Message(Role.ASSISTANT, "Got it."),
        Message(Role.USER, "How many?"),
    )
    session.turn(begun, Said(text="42"))
    session.play([(Move.GO_ON, Said(text="Still 42"))])
    (chain,) = session.forest.chains()
    assert [node.message.text for node, is_trained in chain if is_trained] == ["42", "Still 42"]
    assert (session.forest.counts.bridged, session.forest.counts.forks) == (1, 0)
    require_exact(session)


def test_which_of_two_chains_was_there_first_changes_nothing(tokenizer: HfTokenizer, bridge: Bridge) -> None:
    def trained(*answers: str) -> list[list[tuple[str, bool]]]:
        session = Played(Forest(bridge), tokenizer)
        session.play([(Move.ANEW, Said(text="42")), (Move.GO_ON, Said(text=answers[0]))])
        session.play([(Move.AGAIN, Said(text=answers[1]))])
        return [[(node.message.text, is_trained) for node, is_trained in chain] for chain in session.forest.chains()]

    assert trained("Yes", "No") == trained("No", "Yes")


def test_sub_agents_that_are_asked_the_same_have_conversations_of_their_own(session: Played) -> None:
    asked = (Message(Role.USER, "17 + 25?"),)
    for agent in ("", "first", "second"):
        session.turn(asked, Said(text="42"), agent)
    for agent in ("", "first", "second"):
        session.turn((*asked, Message(Role.ASSISTANT, "42"), Message(Role.USER, "Sure?")), Said(text="Yes"), agent)
    assert (session.forest.counts.bridged, session.forest.counts.forks) == (3, 0)
    require_exact(session)


def test_other_tools_begin_anew(session: Played) -> None:
    session.play([(Move.ANEW, Said(text="42"))])
    session.tools = ()
    session.play([(Move.GO_ON, Said(text="Yes"))])
    assert len(list(session.forest.chains())) == 2
    require_exact(session)


def test_a_template_that_changes_what_came_before_forks_and_is_exact(tmp_path: Path) -> None:
    tokenizer = load_chat(tmp_path, MOVES_TOOLS)
    session = Played(Forest(Bridge(tokenizer)), tokenizer)
    session.play([(Move.ANEW, Said(calls=1)), (Move.GO_ON, Said(text="42")), (Move.GO_ON, Said(text="Yes"))])
    assert sorted(sum(is_trained for _, is_trained in chain) for chain in session.forest.chains()) == [1, 2]
    assert session.forest.counts.forks == 1
    require_exact(session)


class TestAfterAReply:
    """Requests that name the reply they go on from, and send nothing of what came before it."""

    def test_it_is_the_same_chain(self, session: Played) -> None:
        turn = session.turn((Message(Role.SYSTEM, "Count."), Message(Role.USER, "17 + 25?")), Said(calls=1))
        session.forest.name(turn.node, ["resp_1"])
        result = Message(Role.TOOL, "42", answers=turn.node.message.calls[0].id)
        plan = session.forest.plan(Request((result,), after="resp_1"))
        assert plan.anchor is turn.node
        assert plan.tools == TOOLS

    def test_the_same_instructions_said_again_are_not_written_again(self, session: Played) -> None:
        turn = session.turn((Message(Role.SYSTEM, "Count."), Message(Role.USER, "17 + 25?")), Said(text="42"))
        session.forest.name(turn.node, ["resp_1"])
        plan = session.forest.plan(
            Request((Message(Role.USER, "Sure?"),), after="resp_1", instructions="Count.", tools=TOOLS)
        )
        assert (plan.anchor, len(plan.tail)) == (turn.node, 1)

    def test_other_instructions_begin_anew_with_the_same_history(self, session: Played) -> None:
        turn = session.turn((Message(Role.SYSTEM, "Count."), Message(Role.USER, "17 + 25?")), Said(text="42"))
        session.forest.name(turn.node, ["resp_1"])
        plan = session.forest.plan(Request((Message(Role.USER, "Sure?"),), after="resp_1", instructions="Be rude."))
        assert plan.anchor is None
        assert [message.text for message in plan.tail] == ["Be rude.", "17 + 25?", "42", "Sure?"]

    def test_an_unknown_one_is_refused(self, session: Played) -> None:
        with pytest.raises(ApiError, match="no reply of this session has the id 'resp_9'") as caught:
            session.forest.plan(Request((Message(Role.USER, "Sure?"),), after="resp_9"))
        assert (caught.value.status, caught.value.code) == (404, "previous_response_not_found")


@pytest.mark.property
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(moves=MOVES, echo=st.sampled_from(Echo), keeps_template=st.booleans())
def test_whatever_a_client_does_what_is_trained_on_is_what_the_engine_saw(
    tokenizer: HfTokenizer, bridge: Bridge, moves: list[tuple[Move, Said]], echo: Echo, keeps_template: bool
) -> None:
    session = Played(Forest(bridge, keeps_template=keeps_template), tokenizer, echo)
    session.play(moves)
    require_exact(session)
