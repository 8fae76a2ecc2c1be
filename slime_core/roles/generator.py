"""Generator: turns one pending sample into finished ones by talking to the engine.

Example:

    async def __call__(self, sample, ctx):
        prompt = ctx.tokenizer.encode(sample.prompt)
        out = await ctx.generate(prompt)
        ...
        return [sample]            # several when one rollout fans out: they share `rollout_id`
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from slime_core.roles._spec import Spec
from slime_core.roles.engine import GenerateOutput, SamplingParams
from slime_core.roles.tokenizer import Tokenizer
from slime_core.sample import Sample


@dataclass(frozen=True, slots=True)
class GenerateContext:
    """What a generator may use for one sample."""

    generate: Callable[[Sequence[int], SamplingParams], Awaitable[GenerateOutput]]
    """One engine call: prompt ids and sampling parameters; seeds are derived by the core, per turn."""
    tokenizer: Tokenizer
    """The policy's tokenizer."""
    sampling: SamplingParams
    """The run's sampling parameters, with the token budget of the whole response."""
    rollout_id: int
    """Number of the rollout, from 0."""
    evaluation: bool
    """Whether this is for evaluation."""


@runtime_checkable
class Generator(Protocol):
    """Runs one rollout; raising costs that one sample."""

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        """Return the finished samples, at least one, none of them PENDING."""
        ...


@dataclass(frozen=True)
class GeneratorSpec(Spec[Generator]):
    """Offers a generator."""

    role: ClassVar[str] = "generator"

    timeout_s: float | None = None
    """Seconds after which one sample is given up; None: the run's sample_timeout_s."""
    max_concurrency: int | None = None
    """Samples at once; None: the run's max_concurrency alone."""
