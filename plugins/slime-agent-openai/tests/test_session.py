import asyncio
from collections.abc import Callable

import pytest
from chat import load_chat
from session_clients import CheckedListener
from talker import Talker

from slime_agent_openai.bridge import Bridge
from slime_agent_openai.errors import ApiError
from slime_agent_openai.message import Finish, Message, Reply, Request, Role, Tool
from slime_agent_openai.parsers.families import HERMES, PLAIN
from slime_agent_openai.session import Session, SessionLimits
from slime_core.data import HfTokenizer
from slime_core.errors import LimitError
from tests.tables import table

ASKED = (Message(Role.USER, "What is 17 + 25?"),)
TOOLS = (Tool("add", "Adds.", '{"type": "object", "properties": {"a": {"type": "integer"}}}'),)


def talks(tokenizer: HfTokenizer, *texts: str) -> Talker:
    return Talker(tokenizer, lambda text, turn: texts[min(turn, len(texts) - 1)])


def session_of(talker: Talker, limits: SessionLimits | None = None, **context: object) -> Session:
    made = talker.context(**context)  # type: ignore[arg-type]
    return Session(made, limits or SessionLimits(), Bridge(talker.tokenizer), HERMES)


def ask(session: Session, request: Request, heard: CheckedListener | None = None) -> Reply:
    return asyncio.run(session.reply(request, heard))


def refusal(act: Callable[[], object]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        act()
    return caught.value


class TestLimits:
    """What one session may use."""

    def test_max_tokens_of_one_reply(self, tokenizer: HfTokenizer) -> None:
        reply = ask(session_of(talks(tokenizer, "42 is it"), SessionLimits(max_turn_tokens=2)), Request(ASKED))
        assert (len(reply.tokens), reply.finish) == (2, Finish.LENGTH)
        reply = ask(session_of(talks(tokenizer, "42 is it")), Request(ASKED, max_tokens=3))
        assert (len(reply.tokens), reply.finish) == (3, Finish.LENGTH)

    async def test_token_budget_covers_all_turns(self, tokenizer: HfTokenizer) -> None:
        talker = talks(tokenizer, "It is 42.", "Yes, it is 42 and nothing else at all.")
        session = session_of(talker, max_new_tokens=40)
        first = await session.reply(Request(ASKED))
        second = await session.reply(Request((*ASKED, first.message, Message(Role.USER, "Sure?"))))
        begin = len(talker.log[0].prompt)
        assert len(talker.log[1].prompt) + len(second.tokens) - begin == 40
        assert second.finish is Finish.LENGTH

    def test_engine_call_limit_is_a_turn_limit(self, tokenizer: HfTokenizer) -> None:
        def refuses(text: str, turn: int) -> str:
            raise LimitError("the sample has made its 0 calls")

        session = session_of(Talker(tokenizer, refuses))
        assert refusal(lambda: ask(session, Request(ASKED))).code == "turn_limit"
        assert session.exceeded_limit


def test_seeds_depend_on_the_prompt_not_on_the_order(tokenizer: HfTokenizer) -> None:
    def names(order: list[int]) -> dict[tuple[int, ...], set[str | None]]:
        talker = talks(tokenizer, "42")
        session = session_of(talker)

        async def all_at_once() -> None:
            requests = [Request((Message(Role.USER, f"Question {number}"),)) for number in order]
            await asyncio.gather(*map(session.reply, requests))

        asyncio.run(all_at_once())
        found: dict[tuple[int, ...], set[str | None]] = {}
        for asked in talker.log:
            found.setdefault(asked.prompt, set()).add(asked.turn)
        return found

    assert names([1, 2, 1]) == names([1, 1, 2])
    assert sorted(map(len, names([1, 2, 1]).values())) == [1, 2]


@table("tools", [(), TOOLS])
def test_missing_chat_template_ends_the_run(tools: tuple[Tool, ...], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("bare")
    load_chat(folder)
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}', "utf-8")
    bare = HfTokenizer.load(folder)
    session = Session(talks(bare, "42").context(), SessionLimits(), Bridge(bare), PLAIN)
    assert refusal(lambda: ask(session, Request(ASKED, tools=tools))).param == "messages"
    assert "has no chat template" in str(session.fatal_error)
    assert session.interrupted.is_set()


def test_truncated_tool_call_is_counted_text(tokenizer: HfTokenizer) -> None:
    broken = '<tool_call>{"name": "add", "arguments": {"a": 1'
    talker = talks(tokenizer, broken)
    session = session_of(talker)
    reply = ask(session, Request(ASKED, tools=TOOLS))
    assert (reply.message.text, reply.message.calls, session.counts["malformed_calls"]) == (broken, (), 1)
    (chain,) = session.forest.chains()
    assert tuple(chain[-1][0].ids) == talker.log[0].output


def test_template_error_refuses_the_request(tokenizer: HfTokenizer, tmp_path_factory: pytest.TempPathFactory) -> None:
    picky = load_chat(tmp_path_factory.mktemp("picky"), "{{ raise_exception('roles must alternate') }}")
    session = Session(talks(picky, "42").context(), SessionLimits(), Bridge(picky), HERMES)
    error = refusal(lambda: ask(session, Request(ASKED)))
    assert (error.status, error.param) == (400, "messages")
    assert "roles must alternate" in error.message
