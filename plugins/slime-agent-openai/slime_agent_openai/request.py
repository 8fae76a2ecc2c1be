"""Request: what an agent asks of the model in one HTTP request, whichever protocol it speaks.

A wire (`slime_agent_openai.wires`) reads one from a body; `Session.reply` answers it.
"""

from dataclasses import dataclass

from slime_agent_openai.message import Message, Tool


@dataclass(frozen=True, slots=True)
class Constraint:
    """A field that would keep the reply to a form, which nothing does here."""

    field: str
    """Where it is, such as "tool_choice"."""
    why: str
    """Why it is not heeded, and what to do."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A setting of the draw, as an agent wants it."""

    field: str
    """Where it is, such as "repeat_penalty"."""
    value: float = 0.0
    """Its value; of a flag 0 or 1."""
    setting: str = ""
    """Which of `SamplingParams` it is, by name; empty: none, so nothing here draws that way."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request for a reply."""

    messages: tuple[Message, ...]
    """The conversation so far; with `after`, what came since."""
    ids: tuple[str, ...] = ()
    """Ids that the reply will be known by, on its wire: what a later `after` says."""
    tools: tuple[Tool, ...] = ()
    """What the model may call."""
    after: str = ""
    """Id of an earlier reply of this session that this goes on from; empty: `messages` is the whole conversation."""
    after_field: str = "previous_response_id"
    """The field of the body that says `after`, for errors."""
    instructions: str = ""
    """With `after`: what the conversation's SYSTEM message is to be from here on; empty: as it was."""
    template: str = ""
    """What the chat template is given beside the run's own arguments, as JSON with sorted keys; empty: nothing."""
    raw: str = ""
    """A prompt as it is, without a chat template: its reply is text alone. `messages` and `tools` are empty then."""
    max_tokens: int | None = None
    """Tokens that the reply may have; None: as many as the run gives."""
    stop: tuple[str, ...] = ()
    """Texts that end the reply."""
    sampling: tuple[Wanted, ...] = ()
    """What the agent wants of the draw, the run's or other than that: what is left out is as the run has it."""
    constraints: tuple[Constraint, ...] = ()
    """What would keep the reply to a form: it is refused, or left aside and counted."""
    has_call_rules: bool = False
    """Whether it wants no more than one call, or arguments that fit their schema (`strict`). Unmodified clients say so
    on their own: it is left aside and counted."""
    log_probs: bool = False
    """Whether the text and the log-prob of each token are wanted."""
    agent: str = ""
    """Which of a session's agents asks, where a client says so: the main one says nothing."""
