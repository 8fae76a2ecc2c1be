"""The choices of slime-compat, one for each of slime's flags that takes a function.

Example:

    slime train run.toml --reward rm --reward.rm.path my_package.rewards.custom_rm
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from slime_compat.settings import MAX_CONCURRENCY, FunctionSettings, GenerateSettings, RewardSettings
from slime_core import hookimpl
from slime_core.roles import (
    BufferFilterSpec,
    DataSource,
    DataSourceSetup,
    DataSourceSpec,
    ForeignName,
    GeneratorSpec,
    GroupFilterSpec,
    GroupRewardSpec,
    Isolation,
    RewardShaperSpec,
    RewardSpec,
    SampleFilterSpec,
    Setup,
)

SLIME_API = "1"


def _adapter(name: str) -> Callable[[FunctionSettings, Setup], Any]:
    def build(settings: FunctionSettings, setup: Setup) -> object:
        return getattr(import_module("slime_compat.adapters"), name)(settings)

    return build


@hookimpl
def slime_rewards() -> Iterable[RewardSpec]:
    """`--custom-rm-path`."""
    summary, loop = "async f(args, sample), slime's --custom-rm-path", Isolation.LOOP
    yield RewardSpec("rm", _adapter("SlimeReward"), RewardSettings, summary, timeout_s=120.0, isolation=loop)


@hookimpl
def slime_group_rewards() -> Iterable[GroupRewardSpec]:
    """`--custom-rm-path` with `--group-rm`."""
    summary, build = "async f(args, samples), slime's --custom-rm-path with --group-rm", _adapter("SlimeGroupReward")
    yield GroupRewardSpec("group_rm", build, RewardSettings, summary, timeout_s=120.0, isolation=Isolation.LOOP)


@hookimpl
def slime_generators() -> Iterable[GeneratorSpec]:
    """`--custom-generate-function-path`."""
    summary = "async f(args, sample, sampling_params), slime's --custom-generate-function-path"
    build = _adapter("SlimeGenerate")
    yield GeneratorSpec("generate", build, GenerateSettings, summary, max_concurrency=MAX_CONCURRENCY)


@hookimpl
def slime_group_filters() -> Iterable[GroupFilterSpec]:
    """`--dynamic-sampling-filter-path`."""
    summary = "f(args, group), slime's --dynamic-sampling-filter-path"
    yield GroupFilterSpec("dynamic_filter", _adapter("SlimeDynamicFilter"), FunctionSettings, summary)


@hookimpl
def slime_sample_filters() -> Iterable[SampleFilterSpec]:
    """`--rollout-sample-filter-path`."""
    summary = "f(args, groups), slime's --rollout-sample-filter-path"
    yield SampleFilterSpec("rollout_filter", _adapter("SlimeSampleFilter"), FunctionSettings, summary)


@hookimpl
def slime_buffer_filters() -> Iterable[BufferFilterSpec]:
    """`--buffer-filter-path`."""
    summary = "f(args, None, buffer, n), slime's --buffer-filter-path"
    yield BufferFilterSpec("buffer_filter", _adapter("SlimeBufferFilter"), FunctionSettings, summary)


@hookimpl
def slime_reward_shapers() -> Iterable[RewardShaperSpec]:
    """`--custom-reward-post-process-path`."""
    summary = "f(args, samples), slime's --custom-reward-post-process-path"
    yield RewardShaperSpec("post_process", _adapter("SlimeRewardPostProcess"), FunctionSettings, summary)


@hookimpl
def slime_data_sources() -> Iterable[DataSourceSpec]:
    """`--data-source-path`."""
    yield DataSourceSpec(
        "source", _source, FunctionSettings, "class(args), slime's --data-source-path", reads_prompt_data=None
    )


def _source(settings: FunctionSettings, setup: DataSourceSetup) -> DataSource:
    from slime_compat.source import SlimeDataSource

    return SlimeDataSource(settings, setup)


@hookimpl
def slime_foreign_names() -> Iterable[ForeignName]:
    """Names of our keys in slime, TRL, verl, OpenRLHF and peft."""
    from slime_compat.names import foreign_names

    return foreign_names()
