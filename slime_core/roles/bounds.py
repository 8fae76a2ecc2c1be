"""Types of settings that several keys share, each with its bounds. Other keys have their bounds in their `Field`.

Every number of a run has a least and a greatest value, so that a mistyped number is refused before a run starts.

Example:

    class Mine(Settings):
        workers: Workers = Field(2, description="Processes.")
        weight: Coefficient = Field(0.1, description="Of its term in the loss.")
"""

from typing import Annotated

from pydantic import AfterValidator, Field

from slime_core.roles.sampling import RANGES, Range

Positive = Annotated[int, Field(ge=1, le=10**9)]
"""A number of samples, tokens, steps or rollouts."""
Workers = Annotated[int, Field(ge=1, le=4096)]
"""A number of processes, GPUs, nodes or engines."""
Weight = Annotated[float, Field(gt=0.0, le=1e6)]
"""A share of a sum, in proportion to the others."""
Coefficient = Annotated[float, Field(ge=0.0, le=1e6)]
"""A factor of a term."""
Number = Annotated[float, Field(ge=-1e9, le=1e9)]
"""A reward, or a weight that may be negative."""
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
"""An id of a vocabulary."""


def _float(given: Range) -> object:
    return Field(ge=None if given.is_open else given.least, gt=given.least if given.is_open else None, le=given.most)


def _not_zero(value: int) -> int:
    if value == 0:
        raise ValueError("0 keeps no candidate: give 1 or more, or -1 for off")
    return value


Temperature = Annotated[float, _float(RANGES["temperature"])]
TopP = Annotated[float, _float(RANGES["top_p"])]
TopK = Annotated[int, Field(ge=-1, le=RANGES["top_k"].most), AfterValidator(_not_zero)]
MinP = Annotated[float, _float(RANGES["min_p"])]
MinNewTokens = Annotated[int, Field(ge=0, le=RANGES["min_new_tokens"].most)]
RepetitionPenalty = Annotated[float, _float(RANGES["repetition_penalty"])]
Penalty = Annotated[float, _float(RANGES["presence_penalty"])]
