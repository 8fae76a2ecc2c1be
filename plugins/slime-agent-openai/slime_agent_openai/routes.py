"""Routes: which path speaks which protocol."""

from collections.abc import Callable
from dataclasses import dataclass

from slime_agent_openai.errors import ApiError
from slime_agent_openai.memory import Turn
from slime_agent_openai.request import Request
from slime_agent_openai.wires.chat import read_chat
from slime_agent_openai.wires.completions import read_completions
from slime_agent_openai.wires.failing import anthropic_error, openai_error
from slime_agent_openai.wires.known import Known
from slime_agent_openai.wires.messages import read_messages
from slime_agent_openai.wires.offered import Hosted
from slime_agent_openai.wires.responses import read_responses
from slime_agent_openai.wires.wire import Body, NewId, Wire


@dataclass(frozen=True, slots=True)
class Route:
    """A path that replies."""

    read: Callable[[Body, NewId, Turn, Known], tuple[Request, Wire]]
    """Reads a body, given what it goes on from if the session stores that, and what was read of the one before."""
    describe: Callable[[ApiError], Body]
    """Body of an error."""
    is_kept: bool = False
    """Whether its replies are stored, and its bodies may name what is."""


def routes(hosted: Hosted) -> dict[str, Route]:
    """All of them, by path."""
    return {
        "chat/completions": Route(lambda body, new_id, _, known: read_chat(body, new_id, known), openai_error),
        "completions": Route(lambda body, new_id, _, __: read_completions(body, new_id), openai_error),
        "responses": Route(
            lambda body, new_id, turn, _: read_responses(body, new_id, turn, hosted=hosted), openai_error, is_kept=True
        ),
        "messages": Route(
            lambda body, new_id, _, known: read_messages(body, new_id, known, hosted=hosted), anthropic_error
        ),
    }
