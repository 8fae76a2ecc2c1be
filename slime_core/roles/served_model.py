"""ServedModel: a model that a run serves beside the policy and does not train: a judge, a teacher, a critic of texts.

Example:

    judge = setup.models["judge"]                   # of [served_models.judge]
    ids = judge.tokenizer.encode("Is 7 prime? Answer yes or no: ")
    answer = await judge.generate(GenerateRequest(ids, SamplingParams(4, temperature=0.0), seed))
    judge.tokenizer.decode(answer.tokens)
"""

from typing import Protocol, runtime_checkable

from slime_core.roles.generation import GenerateOutput, GenerateRequest
from slime_core.roles.tokenizer import Tokenizer


@runtime_checkable
class ServedModel(Protocol):
    """A frozen model, on engines of its own."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Its own, which may be another one than the policy's."""
        ...

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """Generate one continuation, as an engine does; the version of its weights is 0.

        Raises:
            SlimeError: it cannot be asked, or does not do what is asked for.
        """
        ...
