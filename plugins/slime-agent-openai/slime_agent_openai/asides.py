"""Asides: what a client asks beside its conversation: titles, summaries, probes. A setting says what becomes of them.

An aside is one question and one answer, with no tools offered, beside a conversation that is more. Nobody looks at
what it says: clients word such requests anew with each release. Where an agent's own work looks so (it fans out into
questions, or writes its answer in a conversation of its own), leave the setting as it is: `train`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from slime_agent_openai.forest import Node
from slime_agent_openai.message import Role

Asides: TypeAlias = Literal["train", "mask", "drop"]
"""They are samples like others; samples that are not trained on; none."""
Chain: TypeAlias = Sequence[tuple[Node, bool]]
"""A conversation from its beginning to its end, each message with whether it is trained on here."""


@dataclass(frozen=True, slots=True)
class Sorted:
    """The conversations of a session."""

    main: Chain
    """The one that ends with the latest reply to the main agent, else to any; of those that the model was asked for at
    once, which end by chance, the longest."""
    chains: Sequence[Chain]
    """All that become samples, the main one among them."""
    masked: Sequence[Chain]
    """Those of them that are not trained on."""
    count: int
    """Asides, dropped ones included."""


def sort(chains: Sequence[Chain], policy: Asides) -> Sorted:
    """Find the main conversation of a session, and its asides where a policy asks for them.

    Args:
        chains: at least one, in an order that is not chance.
        policy: what becomes of asides.
    """
    asides = [chain for chain in chains if _is_aside(chain)] if policy != "train" else []
    asides = asides if len(asides) < len(chains) else []
    kept = [chain for chain in chains if chain not in asides]
    main = _main([chain for chain in kept if not chain[-1][0].agent] or kept)
    return Sorted(main, kept if policy == "drop" else chains, asides, len(asides))


def _main(chains: Sequence[Chain]) -> Chain:
    """Of the conversations that had not ended when the last reply was asked for the longest, else the last in order."""
    asked = max(chain[-1][0].asked for chain in chains)
    last = [chain for chain in chains if chain[-1][0].made > asked]
    return max(reversed(last), key=len)


def _is_aside(chain: Chain) -> bool:
    spoken = [node for node, _ in chain if node.message.role is Role.ASSISTANT]
    return len(spoken) == 1 and not spoken[0].tools and not spoken[0].agent
