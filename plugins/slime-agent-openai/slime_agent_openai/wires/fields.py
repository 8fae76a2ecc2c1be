"""Fields: what a protocol's requests may say, and what is made of each field: heeded, harmless or refused.

What would change the model's answers and is not done here is refused by name: an agent that believes that it got what
it asked for trains on something else. Fields that nobody knows are harmless: SDKs add some with every release.

Example:

    FIELDS = Fields(heeded={"prompt"}, harmless={"user"}, refused={"n": Only((1,), "a request has one reply")})
    FIELDS.read({"prompt": "Hi", "n": 2})      # ApiError: n is not supported here: a request has one reply
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass

from slime_agent_openai.errors import unsupported
from slime_agent_openai.wires.reading import Value
from slime_agent_openai.wires.wire import Body
from slime_core.sample import Json


@dataclass(frozen=True, slots=True)
class Only:
    """A field that is refused but for values that ask for nothing."""

    values: tuple[Json, ...]
    """Those, beside null."""
    why: str
    """Why others are refused, and what to do."""


@dataclass(frozen=True, slots=True)
class Fields:
    """All that one protocol knows."""

    heeded: Set[str]
    """Read."""
    harmless: Set[str]
    """Left aside: they change no answer, or only advise."""
    refused: Mapping[str, Only]
    """Refused."""

    def read(self, body: Body) -> Value:
        """The body, to be read on, without anything that is refused."""
        for name, only in self.refused.items():
            value = body.get(name)
            if value is not None and value not in only.values:
                raise unsupported(name, only.why)
        return Value(body)


NO_RECORDING = "the model's answers are text"
"""Why others than text are refused."""
ONE_REPLY = "a request has one reply; send it again for another"
"""Why more replies are refused."""
