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
from slime_core.roles.spec import Settings, Spec, Stability
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
        on_chunk: Callable[[GenerateChunk], None] | None = None,
        media: Mapping[str, Json] | None = None,
    ) -> GenerateOutput:
        """One response; its `versions` lists the weight versions of its tokens.

        Args:
            prompt: token ids.
            sampling: how to sample; None: `ctx.sampling`.
            turn: the call's name, from which its seed is derived. Calls without a name are numbered in their order.
                Name concurrent calls: their order, and with it their seeds, may vary. A call that raised may be
                retried under its name.
            session: the conversation that contains the call. One of several engines serves it. Does not affect outputs.
            on_chunk: callback for each chunk of the response, in order, while it streams.
            media: images, videos or audio for the prompt's placeholders.

        Raises:
            ContractError: this sample has already made a call of that name.
            LimitError: the prompt fills the context, or the sample has reached its limit of calls.
            SlimeError: the engine rejected the request, or several engines failed on it.
        """


@dataclass(frozen=True, slots=True)
class GenerateContext:
    """What a generator may use for one sample."""

    generate: Generate
    """Calls the engine once. The core derives the seed from the sample's identity and the call's name."""
    tokenizer: Tokenizer
    """The policy's tokenizer."""
    sampling: SamplingParams
    """The run's sampling parameters, with the token budget of the whole response."""
    rollout_id: int
    """Number of the rollout, from 0."""
    evaluation: bool
    """Whether this is for evaluation."""
    max_context: int | None = None
    """Most tokens of prompt and response in a call (`rollout_max_context_len`, else the model's limit), if known."""
    max_turns: int | None = None
    """Most calls of one sample, `rollout_max_turns`; None: no limit."""
    measure: Callable[[str, float], None] = lambda name, value: None
    """`ctx.measure("tool_calls", 3)`: mean and p99 over samples are metrics, `rollout/<generator>/tool_calls/...`.
    Do not measure time: metrics would differ from run to run."""
    restart: Callable[[], None] = lambda: None
    """`ctx.restart()` forgets the sample's earlier calls and their names. No call may be running."""


@runtime_checkable
class Generator(Protocol):
    """Runs one generator call. An exception fails this sample only.

    A `slime_core.errors.ConfigError` ends the run, because these settings cannot generate any sample.
    """

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        """Return the finished samples, at least one, none of them PENDING.

        Of several samples, rewards score the one with `metadata["main"] = True`, else the last. A failed sample has
        status FAILED and a `failure_reason`, and keeps its tokens so far.
        """


@runtime_checkable
class StartsAndStops(Protocol):
    """Optional: a generator with resources for the whole run, such as a server, worker processes or sandboxes."""

    async def start(self) -> None:
        """Acquire the resources; awaited once, after the engine has started and before the first sample."""

    async def close(self) -> None:
        """Release the resources; awaited once before the engine is closed, also after errors and if `start` raised."""


@dataclass(frozen=True)
class GeneratorSpec(Spec[Generator]):
    """Offers a generator: how one rollout is run."""

    role: ClassVar[str] = "generator"
    stability: ClassVar[Stability] = Stability.STABLE

    max_concurrency: int | Callable[..., int | None] | None = None
    """Most concurrent samples, or a function of the settings; None: only the run's max_concurrency applies."""
    gives: frozenset[Extra] = frozenset()
    """Extras that its samples carry with any engine."""
    text_only: bool = False
    """Whether it sends only text to engines, no images, videos or audio."""
    scores: bool = True
    """Whether it may set its samples' rewards itself. If not, an estimator can read only rewards that the run chose."""
    renders_prompts: bool = False
    """Whether it renders the chat template itself, so that the run must not set `apply_chat_template`."""

    def concurrency_of(self, settings: Settings) -> int | None:
        """Most concurrent samples with these settings."""
        return self.max_concurrency(settings) if callable(self.max_concurrency) else self.max_concurrency
