"""Replies that a text of `stop` ended, and clients that put it back into what they send of them."""

import asyncio
from collections.abc import Callable

from serving import served
from talker import Talker

from slime_agent_openai.message import Message, Role
from slime_agent_openai.session import SessionLimits
from slime_core.data import HfTokenizer
from tests.tables import table

SAID = ("<think>\nHm.\n</think>\n\nAction: look\nObservation: I make it up", "It is 42.", "Yes.")
STOP = "\nObservation:"
FIELDS = {"chat/completions": "stop", "messages": "stop_sequences"}


def text_of(path: str, body: dict) -> str:  # type: ignore[type-arg]
    if path == "messages":
        return str(next(block["text"] for block in body["content"] if block["type"] == "text"))
    return str(body["choices"][0]["message"]["content"])


def played(
    tokenizer: HfTokenizer, path: str, echo: Callable[[str], str], limits: SessionLimits | None = None
) -> tuple[Talker, int, int]:
    """Three turns; what the engine saw, and how many samples and forks there are."""
    talker = Talker(tokenizer, lambda text, turn: SAID[turn])

    async def run() -> tuple[int, int]:
        async with served(talker, limits) as there:
            said: list[dict[str, object]] = [{"role": "user", "content": "Look!"}]
            for follows in ("Observation: a 42", "Sure?", ""):
                body = {"model": "policy", "max_tokens": 100, FIELDS[path]: [STOP], "messages": said}
                status, reply = await there.post(path, body)
                assert status == 200, reply
                text = text_of(path, reply)
                assert STOP not in text
                echoed = {"role": "assistant", "content": echo(text) if len(said) == 1 else text}
                said = [*said, echoed, {"role": "user", "content": follows}]
            return len(list(there.session.forest.chains())), there.session.forest.counts.forks

    return talker, *asyncio.run(run())


@table("path", FIELDS)
@table("echo", [str, f"{{}}{STOP}".format, lambda text: f"{text.strip()}{STOP} ", f"Hm.\n\n{{}}{STOP.strip()}".format])
def test_echoed_stop_text_does_not_fork(tokenizer: HfTokenizer, path: str, echo: Callable[[str], str]) -> None:
    talker, samples, forks = played(tokenizer, path, echo)
    assert (samples, forks) == (1, 0)
    for before, after in zip(talker.log, talker.log[1:], strict=False):
        whole = (*before.prompt, *before.output)
        assert after.prompt[: len(whole)] == whole
    stopped, follows = talker.log[0].output, talker.log[1].prompt
    assert tokenizer.decode(stopped).endswith(STOP)
    rest = tokenizer.decode(follows[len(talker.log[0].prompt) + len(stopped) :], skip_special_tokens=False)
    assert rest.startswith("<|im_end|>\n<|im_start|>user\nObservation: a 42")  # the turn is ended; its stop stays


@table("path", FIELDS)
@table("more", [f"{STOP} and more", "\nObs", f"!{STOP}", f"{STOP}{STOP}"])
def test_changed_text_forks(tokenizer: HfTokenizer, path: str, more: str) -> None:
    _, samples, forks = played(tokenizer, path, lambda text: f"{text}{more}")
    assert (samples, forks) == (2, 1)


def test_rewritten_history_keeps_the_client_stop(tokenizer: HfTokenizer) -> None:
    for echo, written in ((f"{{}}{STOP}".format, f"Action: look{STOP}<|im_end|>"), (str, "Action: look<|im_end|>")):
        talker, *_ = played(tokenizer, "messages", echo, SessionLimits(keeps_template=True))
        prompt = tokenizer.decode(talker.log[1].prompt, skip_special_tokens=False)
        assert written in prompt
        assert "Hm." not in prompt


def test_stop_text_counts_only_after_a_stop() -> None:
    ended = Message(Role.ASSISTANT, "one")
    assert not ended.matches(Message(Role.ASSISTANT, f"one{STOP}"))
