"""Adapters for functions written for slime: rewards, reward post-processing, the three filters, and generators.

slime accepts any reward, even None and NaN; here the metrics count each kind by name. The core passes copies and
removes the selected groups itself, so a filter that does not remove them cannot return a group twice.
"""

import copy
import logging
import math
from collections.abc import Sequence
from typing import ClassVar, cast

from slime_compat.function import Arguments, accepts, generating, load
from slime_compat.settings import FunctionSettings, GenerateSettings, RewardSettings
from slime_compat.slime_api.functions import DynamicFilterOutput, to_core
from slime_compat.slime_api.functions import Sample as SlimeSample
from slime_compat.wire import HOST, sampling_params, serving
from slime_core import Group, Sample, Score, Unscored, Verdict
from slime_core.errors import ContractError
from slime_core.roles import (
    BufferContext,
    Decision,
    Drop,
    FilterContext,
    GenerateContext,
    Keep,
    KeepIfShort,
    Removal,
    RewardContext,
    Selection,
    ShapeContext,
)


class _Adapter:
    """A function written for slime, with its `args`."""

    call: ClassVar[tuple[str, ...]]
    section: ClassVar[str]
    is_async: ClassVar[bool] = False

    def __init__(self, settings: FunctionSettings) -> None:
        """Load the function.

        Raises:
            PluginError: the function cannot be called as slime calls it.
        """
        self._function = load(settings.path, self.call, is_async=self.is_async)
        self._path, self._args = settings.path, Arguments(settings.args, self.section)


class _RewardAdapter(_Adapter):
    is_async = True

    def __init__(self, settings: RewardSettings) -> None:
        super().__init__(settings)
        self._reward_key = settings.reward_key
        self._values = {"reward_key": settings.reward_key, "group_rm": False, **settings.args}


class SlimeReward(_RewardAdapter):
    """A reward around a function for `--custom-rm-path`."""

    call, section = ("args", "sample"), "reward.rm"

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """The function's verdict on a copy of the sample."""
        args = Arguments(self._values, self.section)
        returned = await self._function(args, SlimeSample.of(sample))  # type: ignore[misc]  # `load` checked that it is async
        return verdict_of(returned, self._reward_key)


class SlimeGroupReward(_RewardAdapter):
    """A group reward around a function for `--custom-rm-path` with `--group-rm`."""

    call, section = ("args", "samples"), "group_reward.group_rm"

    async def __call__(self, samples: Sequence[Sample], ctx: RewardContext) -> list[Verdict]:
        """The function's verdicts on copies of the samples.

        Raises:
            ContractError: the numbers of rewards and samples differ; slime would leave the last samples unscored.
        """
        args = Arguments(self._values, self.section)
        returned = await self._function(args, [SlimeSample.of(sample) for sample in samples])  # type: ignore[misc]  # `load` checked that it is async
        if not isinstance(returned, list | tuple) or len(returned) != len(samples):
            found = f"{len(returned)}" if isinstance(returned, list | tuple) else f"a {type(returned).__name__}"
            raise ContractError(
                f"{self._path}: expected {len(samples)} rewards in a list, got {found}. Return one reward per sample"
            )
        return [verdict_of(reward, self._reward_key) for reward in returned]


def verdict_of(returned: object, reward_key: str | None) -> Verdict:
    """A verdict from a returned reward; an invalid reward (None, NaN) becomes `Unscored` with a reason."""
    components: dict[str, float] = {}
    if isinstance(returned, dict):
        table = cast("dict[str, object]", returned)
        if reward_key is None or reward_key not in table:
            return Unscored(f"dict_reward_without_reward_key_{reward_key or ''}".rstrip("_"))
        components = {
            key: float(value)
            for key, value in table.items()
            if key != reward_key and isinstance(value, int | float) and math.isfinite(value)
        }
        returned = table[reward_key]
    if returned is None:
        return Unscored("none_reward")
    if not isinstance(returned, int | float):
        return Unscored(f"{type(returned).__name__}_reward")
    if not math.isfinite(returned):
        return Unscored("nan_reward" if math.isnan(returned) else "infinite_reward")
    return Score(float(returned), components)


class SlimeRewardPostProcess(_Adapter):
    """A reward shaper around a function for `--custom-reward-post-process-path`."""

    call, section = ("args", "samples"), "reward_shaper.post_process"

    def __call__(self, groups: Sequence[Group], ctx: ShapeContext) -> list[list[float | None]]:
        """The second returned list, in the groups' shape; the function gets only samples that have a reward.

        Raises:
            ContractError: the function did not return two lists with one reward per sample.
        """
        flat: list[SlimeSample] = []
        for group, row in zip(groups, ctx.rewards, strict=True):
            for sample, reward in zip(group.samples, row, strict=True):
                if reward is not None:
                    flat.append(SlimeSample.of(sample))
                    flat[-1].reward = reward
        returned = self._function(self._args, flat)
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise ContractError(f"{self._path} returned {type(returned).__name__}; expected (raw_rewards, rewards)")
        raw, shaped = (list(rewards) for rewards in returned)
        if not len(raw) == len(shaped) == len(flat):
            raise ContractError(
                f"{self._path} got {len(flat)} samples, and returned {len(raw)} raw rewards and {len(shaped)} rewards; "
                "return one of each per sample"
            )
        numbers = iter(float(reward) for reward in shaped)
        return [[None if reward is None else next(numbers) for reward in row] for row in ctx.rewards]


_log = logging.getLogger(__name__)


class SlimeDynamicFilter(_Adapter):
    """`f(args, group)` for `--dynamic-sampling-filter-path` as a group filter."""

    call, section = ("args", "samples"), "group_filter.dynamic_filter"

    def __call__(self, group: Group, ctx: FilterContext) -> Decision:
        """The function's decision; any value but a `DynamicFilterOutput` counts as a bool, as in slime."""
        output = self._function(self._args, _copies(group))
        if not isinstance(output, DynamicFilterOutput):
            output = DynamicFilterOutput(keep=bool(output))
        if output.keep:
            return Keep()
        reason = output.reason or "dynamic_filter"
        return KeepIfShort(reason) if output.keep_when_insufficient else Drop(reason)


class SlimeSampleFilter(_Adapter):
    """`f(args, groups)` for `--rollout-sample-filter-path`, which sets `remove_sample`, as a sample filter."""

    call, section = ("args", "groups"), "sample_filter.rollout_filter"

    def __call__(self, groups: Sequence[Group], ctx: FilterContext) -> list[Removal]:
        """The samples whose `remove_sample` the function set."""
        copies = [_copies(group) for group in groups]
        self._function(self._args, [list(samples) for samples in copies])
        return [
            Removal(group.id, position, "remove_sample")
            for group, samples in zip(groups, copies, strict=True)
            for position, (before, after) in enumerate(zip(group.samples, samples, strict=True))
            if after.remove_sample and not before.remove_sample
        ]


class SlimeBufferFilter(_Adapter):
    """`f(args, None, buffer, num_samples)` for `--buffer-filter-path` as a buffer filter."""

    call, section = ("args", "rollout_id", "buffer", "num_samples"), "buffer_filter.buffer_filter"

    def __init__(self, settings: FunctionSettings) -> None:
        """Load the function; raises the same errors as the other adapters."""
        super().__init__(settings)
        self._reported: set[str] = set()

    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        """Take the groups that the function returned; drop groups that it only deleted from the buffer.

        Raises:
            ContractError: the function returned no list, or a group that was not in the buffer.
        """
        copies = [_copies(group) for group in groups]
        buffer = list(copies)
        # slime passes None for the rollout's number, despite its documentation.
        returned = self._function(self._args, None, buffer, want)
        if not isinstance(returned, list):
            raise ContractError(f"{self._path} returned {type(returned).__name__}; expected a list of groups")
        index = {id(group): number for number, group in enumerate(copies)}
        if any(id(group) not in index for group in returned):
            raise ContractError(
                f"{self._path} returned a group that is not in the buffer; return lists from the buffer"
            )
        selected = list(dict.fromkeys(index[id(group)] for group in returned))
        left = {index[id(group)] for group in buffer if id(group) in index}
        if len(selected) > want:
            self._report(f"returned {len(selected)} groups, but {want} were requested; the others stay in the buffer")
        if left & set(selected):
            self._report("did not delete the returned groups from the buffer: slime would return them every time")
        drop = [number for number in range(len(copies)) if number not in left and number not in selected]
        return Selection(take=selected[:want], drop=drop)

    def _report(self, problem: str) -> None:
        if problem.split(" ", 1)[0] not in self._reported:
            self._reported.add(problem.split(" ", 1)[0])
            _log.warning("buffer filter %s %s (reported once)", self._path, problem)


def _copies(group: Group) -> list[SlimeSample]:
    return [SlimeSample.of(copy.copy(sample)) for sample in group.samples]


SECTION = "generator.generate"


class SlimeGenerate:
    """A generator around a custom generate function."""

    def __init__(self, settings: GenerateSettings) -> None:
        """Load the function.

        Raises:
            PluginError: the function cannot be called as slime calls it.
        """
        call = ("args", "sample", "sampling_params")
        self._function = load(settings.path, call, is_async=True, optional=("evaluation",))
        self._path, self._args = settings.path, settings.args
        self._evaluation = accepts(self._function, "evaluation")

    async def __call__(self, sample: Sample, ctx: GenerateContext) -> list[Sample]:
        """Run the function; it may return a sample, or several that share `rollout_id`."""
        extra = {"evaluation": ctx.evaluation} if self._evaluation else {}
        with generating(ctx) as call:
            async with serving(call) as port:
                endpoint = {"sglang_router_ip": HOST, "sglang_router_port": port}
                args = Arguments({**self._args, **endpoint}, SECTION)
                prompt = SlimeSample.of(sample)
                returned = await self._function(args, prompt, sampling_params(ctx.sampling), **extra)  # type: ignore[misc]  # `load` checked that it is async
            samples = returned if isinstance(returned, list) else [returned]
            return [self._checked(item) for item in cast("list[object]", samples)]

    def _checked(self, returned: object) -> Sample:
        if not isinstance(returned, Sample):
            kind = type(returned).__name__
            raise ContractError(f"{self._path} returned {kind}; return a Sample or a list of Samples")
        sample = to_core(returned)
        if sample.response_length and sample.rollout_log_probs is None:
            # slime would recompute them with the trainer, but the importance ratio needs the sampler's log-probs.
            raise ContractError(
                f"{self._path} returned {sample.response_length} response tokens without rollout_log_probs; "
                "use sample.append_response_tokens(args, tokens=..., log_probs=..., meta_info=...)"
            )
        return sample
