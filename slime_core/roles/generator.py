"""Generator: turns one pending sample into finished ones by talking to the engine.

Example:

    async def __call__(self, sample, ctx):
        sample.tokens = ctx.tokenizer.encode(sample.prompt)
        out = await ctx.generate(sample.tokens)
        sample.append_response_tokens(output=out, text=ctx.tokenizer.decode(out.tokens))
        ...
        return [sample]            # several when one execution fans out: they share `rollout_id`
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from slime_core.roles.generation import Extra, GenerateChunk, GenerateOutput, SamplingParams, Tokenizer
from slime_core.roles.spec import Settings, Spec
from slime_core.sample import Json, Sample


class Generate(Protocol):
    """Calls the engine for one sample. Calls may be made at once, from any task."""

    async def __call__(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams | None = None,
        *,
        turn: str | None = None,
        session: str | None = None,
        tell: Callable[[GenerateChunk], None] | None = None,
        media: Mapping[str, Json] | None = None,
    ) -> GenerateOutput:
        """One answer. Versions of the weights that made its tokens are in its `versions`.

        Args:
            prompt: token ids.
            sampling: how to sample; None: as the run does, `ctx.sampling`.
            turn: the call's name, of which its seed is a function. Calls without one are named by their order, so name
                calls that are made at once: who is first is chance, and they would swap their seeds. A call that
                raised may be made again under its name.
            session: the conversation that it is a turn of: several engines keep it with one. Changes no answer.
            tell: told of each part of the answer as it is made, in order; together they are the answer.
            media: images, videos or audio that the prompt's placeholders stand for.

        Raises:
            ContractError: this sample has made a call of that name.
            LimitError: the prompt fills the context, or the sample has made as many calls as it may.
            SlimeError: the engine refuses the request, or several of them were lost over it.
        """
        ...


@dataclass(frozen=True, slots=True)
class GenerateContext:
    """What a generator may use for one sample."""

    generate: Generate
    """One engine call; seeds are derived by the core, from the sample's identity and the call's name."""
    tokenizer: Tokenizer
    """The policy's tokenizer."""
    sampling: SamplingParams
    """The run's sampling parameters, with the token budget of the whole response."""
    rollout_id: int
    """Number of the rollout, from 0."""
    evaluation: bool
    """Whether this is for evaluation."""
    max_context: int | None = None
    """Most tokens of prompt and answer of a call (`rollout_max_context_len`, else the model's positions), if known."""
    max_turns: int | None = None
    """Calls that one sample may make, `rollout_max_turns`; None is without limit."""
    measure: Callable[[str, float], None] = lambda name, value: None
    """`ctx.measure("tool_calls", 3)`: mean and p99 over samples are metrics, `rollout/<generator>/tool_calls/...`.
    Do not measure time: metrics would differ from run to run."""
    anew: Callable[[], None] = lambda: None
    """`ctx.anew()` restarts the sample, with no call under way: earlier calls do not count, their names are free."""


@runtime_checkable
class Generator(Protocol):
    """Runs one rollout; raising costs that one sample.

    A `slime_core.errors.ConfigError` ends the run: with these settings no sample can be generated.
    """

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        """Return the finished samples, at least one, none of them PENDING.

        Of several, the one marked by `metadata["main"] = True`, else the last, is what rewards are asked about. A
        sample that failed is FAILED, says why in `failure_reason`, and keeps the tokens that it has.
        """
        ...


@runtime_checkable
class StartsAndStops(Protocol):
    """What a generator has that holds something for the whole run: a server, worker processes, a pool of sandboxes."""

    async def start(self) -> None:
        """Begin; awaited once, after the engine has started and before the first sample."""
        ...

    async def close(self) -> None:
        """End all of it; awaited once before the engine is closed, also after errors and where `start` raised."""
        ...


@dataclass(frozen=True)
class GeneratorSpec(Spec[Generator]):
    """Offers a generator."""

    role: ClassVar[str] = "generator"

    max_concurrency: int | Callable[..., int | None] | None = None
    """Samples at once, or a function of the settings; None: the run's max_concurrency alone."""
    gives: frozenset[Extra] = frozenset()
    """Of what a trainer may read, what its samples bring whichever engine it asks."""
    text_only: bool = False
    """Whether it gives engines the text of a prompt alone: prompts with images, videos or audio are refused then."""
    scores: bool = True
    """Whether it may give its samples a reward itself; if not, an estimator may only read rewards that are chosen."""
    renders_prompts: bool = False
    """Whether it renders the chat template itself: `apply_chat_template`, which would do so before it, is refused."""

    def concurrency_of(self, settings: Settings) -> int | None:
        """The most samples at once with these settings."""
        return self.max_concurrency(settings) if callable(self.max_concurrency) else self.max_concurrency
