"""Input and output of the training forward: groups of token ids, and one log-prob a response token.

GroupTokens(prompt=[1, 2, 3], responses=[[4, 5], [6]])    # three log-probs: of 4, 5 and 6
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class GroupTokens:
    """One prompt and the responses sampled from it; any number of responses, each of any length from 1.

    Raises:
        ValueError: the prompt, the group or a response is empty.
    """

    prompt: Sequence[int]
    responses: Sequence[Sequence[int]]

    def __post_init__(self) -> None:
        if len(self.prompt) == 0:
            raise ValueError("a group has an empty prompt; give it at least one token")
        if len(self.responses) == 0:
            raise ValueError("a group has no responses; give it at least one")
        for index, response in enumerate(self.responses):
            if len(response) == 0:
                raise ValueError(f"response {index} of a group has no tokens; leave it out of the group")


@dataclass(frozen=True, slots=True)
class TokenLogProbs:
    """Per response token, in the order group, response, token; T is the number of all response tokens."""

    log_probs_T: "torch.Tensor"
    """[T] natural log of the probability of each token under the tempered distribution; differentiable if asked."""
    entropy_T: "torch.Tensor"
    """[T] entropy in nats of the tempered distribution each token was drawn from; differentiable if asked."""
