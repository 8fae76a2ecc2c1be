"""TextLimit: what the model's longest text leaves of a budget, said before it costs a response, and where it cut one.

limit = TextLimit(prompts, budget=256, positions=read_positions(model))       # refuses a prompt that leaves no token
limit.note(prompt=3, sample=0, made=200, finish=FinishReason.LENGTH)
limit.said()                                     # "cut short: 1 response ...", to be shown at the end
"""

from collections.abc import Sequence

from slime_core.errors import DataError
from slime_core.roles import FinishReason


class TextLimit:
    """The longest text that a model takes, and which responses to a list of prompts it cut short."""

    def __init__(self, prompts: Sequence[Sequence[int]], budget: int, positions: int | None) -> None:
        """Measure the prompts.

        Args:
            prompts: token ids of each.
            budget: `max_new_tokens` of a response.
            positions: tokens of the model's longest text, prompt included; None if nobody knows.

        Raises:
            DataError: a prompt leaves no token for a response.
        """
        self._lengths = [len(prompt) for prompt in prompts]
        self._budget, self._positions = budget, positions
        self._cut, self._first = 0, ""
        if positions is None:
            return
        long = [number for number, length in enumerate(self._lengths) if length >= positions]
        if long:
            others = f" (and {len(long) - 1} more are as long)" if long[1:] else ""
            raise DataError(
                f"prompt {long[0]} has {self._lengths[long[0]]} tokens{others}, and the model has {positions} "
                "positions, prompt and response together: none is left for a response. Shorten it, or leave it out; "
                "the first prompt is number 0"
            )

    def note(self, prompt: int, sample: int, made: int, finish: FinishReason) -> None:
        """Count a response if it ended for want of room and not of budget."""
        if finish is not FinishReason.LENGTH or made >= self._budget:
            return
        self._cut += 1
        if not self._first:
            self._first = (
                f"prompt {prompt} sample {sample} has {made} of {self._budget} tokens after "
                f"{self._lengths[prompt]} of the prompt"
            )

    def said(self) -> str:
        """What was cut, as a sentence; empty if nothing was."""
        if not self._cut:
            return ""
        limit = "the engine's longest text" if self._positions is None else f"the model's {self._positions} positions"
        which = "1 response" if self._cut == 1 else f"{self._cut} responses, the first"
        return f"cut short by {limit}: {which}: {self._first}"
