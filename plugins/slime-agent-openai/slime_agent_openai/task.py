"""Task and Result: what an agent is given, the sample's prompt and where it asks the model; and what it may return."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TypeAlias

from slime_core.sample import Json, Message

Reward: TypeAlias = float | dict[str, float] | None
"""A reward of the whole: a number, or parts by name; None leaves it to the run's rewards."""


@dataclass(frozen=True, slots=True)
class Result:
    """What an agent returns that has more to say than a reward at the end."""

    reward: Reward = None
    """Of the whole."""
    turn_rewards: Sequence[float] | None = None
    """One for each reply of the model in the main conversation, in their order: [replies]; None: there are none."""
    agents: Mapping[str, Reward] = field(default_factory=dict)
    """Rewards of sub-agents, by what the header says that tells them apart; others' samples have the whole's."""
    metadata: Mapping[str, Json] = field(default_factory=dict)
    """What else is worth keeping with the sample: added to its metadata."""


Verdict: TypeAlias = Reward | Result
"""What an agent returns: its own reward, or more."""


@dataclass(frozen=True, slots=True)
class Task:
    """One sample, as its agent sees it."""

    prompt: str | list[Message]
    """The text, or the chat messages, as the row has them."""
    label: Json
    """The gold answer, as the row has it."""
    url: str
    """What the model answers at: base URL of Anthropic's clients."""
    api_key: str
    """This sample's; it is refused once the agent has ended."""
    metadata: dict[str, Json] = field(default_factory=dict)
    """The row's."""
    evaluation: bool = False
    """Whether nobody is trained on what happens."""
    model: str = "policy"
    """A name to call the model by; any will do."""
    sampling: dict[str, float] = field(default_factory=dict)
    """The run's temperature, top_p and max_tokens, as requests name them; what a request leaves out is the same."""

    @property
    def openai_base_url(self) -> str:
        """Base URL of OpenAI's clients."""
        return f"{self.url}/v1"

    @property
    def anthropic_base_url(self) -> str:
        """Base URL of Anthropic's clients."""
        return self.url

    def to_json(self) -> dict[str, Json]:
        """As it travels to a worker process."""
        return asdict(self)
