"""SlimeGenerate: `await f(args, sample, sampling_params[, evaluation=...])` as a generator."""

from typing import cast

from slime_compat.arguments import Arguments
from slime_compat.call import generating
from slime_compat.endpoint import HOST, serving
from slime_compat.function import accepts, load
from slime_compat.settings import GenerateSettings
from slime_compat.slime_api.types import Sample as SlimeSample
from slime_compat.slime_api.types import to_core
from slime_compat.wire import sampling_params
from slime_core import Sample
from slime_core.errors import ContractError
from slime_core.roles import GenerateContext

SECTION = "generator.generate"


class SlimeGenerate:
    """A generator around a custom generate function."""

    def __init__(self, settings: GenerateSettings) -> None:
        """Load the function.

        Raises:
            PluginError: it cannot be called as slime calls it.
        """
        call = ("args", "sample", "sampling_params")
        self._function = load(settings.path, call, is_async=True, optional=("evaluation",))
        self._path, self._args = settings.path, settings.args
        self._evaluation = accepts(self._function, "evaluation")

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        """Run it; it may return a sample, or several that share `rollout_id`."""
        extra = {"evaluation": ctx.evaluation} if self._evaluation else {}
        with generating(ctx) as call:
            async with serving(call) as port:
                served = {"sglang_router_ip": HOST, "sglang_router_port": port}
                args = Arguments({**self._args, **served}, SECTION)
                given = SlimeSample.of(sample)
                returned = await self._function(args, given, sampling_params(ctx.sampling), **extra)  # type: ignore[misc]  # `async def`, as was seen when it was found
            made = returned if isinstance(returned, list) else [returned]
            return [self._checked(each) for each in cast("list[object]", made)]

    def _checked(self, returned: object) -> Sample:
        if not isinstance(returned, Sample):
            kind = type(returned).__name__
            raise ContractError(f"{self._path} returned {kind}; slime takes a Sample, or a list of them")
        sample = to_core(returned)
        if sample.response_length and sample.rollout_log_probs is None:
            # slime would train on log-probs that it computes again; with the sampler's missing, the ratio is made up.
            raise ContractError(
                f"{self._path} returned {sample.response_length} response tokens without rollout_log_probs; "
                "use sample.append_response_tokens(args, tokens=..., log_probs=..., meta_info=...)"
            )
        return sample
