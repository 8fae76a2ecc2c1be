"""Call: the generation that slime's code is in the middle of, found through a context variable.

slime keeps it in a process-wide singleton (`GenerateState`), whose first caller wins for ever.
"""

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from slime_core.roles import GenerateContext, GenerateOutput, SamplingParams


@dataclass(slots=True)
class Call:
    """One sample's generation."""

    ctx: GenerateContext
    """What the core offers it."""
    versions: set[str] = field(default_factory=set)
    """Weight versions of its engine calls so far."""

    async def generate(self, prompt: Sequence[int], sampling: SamplingParams) -> GenerateOutput:
        """One engine call."""
        output = await self.ctx.generate(prompt, sampling)
        self.versions.add(str(output.weight_version))
        return output


_current: ContextVar[Call | None] = ContextVar("slime_compat_call", default=None)


def current_call() -> Call | None:
    """The generation in progress in this task, if any."""
    return _current.get()


@contextlib.contextmanager
def generating(ctx: GenerateContext) -> Iterator[Call]:
    """Everything inside, tasks included, belongs to one sample's generation."""
    call = Call(ctx)
    token = _current.set(call)
    try:
        yield call
    finally:
        _current.reset(token)
