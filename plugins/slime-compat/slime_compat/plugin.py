"""The choices of slime-compat, one for each of slime's flags that takes a function.

Example:

    slime train run.toml --reward rm --reward.rm.path my_package.rewards.custom_rm
"""

from collections.abc import Iterable

from slime_compat.settings import MAX_OPEN, FunctionSettings, GenerateSettings, RewardSettings
from slime_core import hookimpl
from slime_core.roles import (
    BufferFilter,
    BufferFilterSpec,
    DataSource,
    DataSourceSetup,
    DataSourceSpec,
    ForeignName,
    Generator,
    GeneratorSpec,
    GroupFilter,
    GroupFilterSpec,
    GroupReward,
    GroupRewardSpec,
    Reward,
    RewardShaper,
    RewardShaperSpec,
    RewardSpec,
    SampleFilter,
    SampleFilterSpec,
    Setup,
)

SLIME_API = "1"


@hookimpl
def slime_rewards() -> Iterable[RewardSpec]:
    """`--custom-rm-path`."""
    yield RewardSpec("rm", _rm, RewardSettings, "async f(args, sample), slime's --custom-rm-path", timeout_s=120.0)


def _rm(settings: RewardSettings, setup: Setup) -> Reward:
    from slime_compat.adapters import SlimeReward

    return SlimeReward(settings)


@hookimpl
def slime_group_rewards() -> Iterable[GroupRewardSpec]:
    """`--custom-rm-path` with `--group-rm`."""
    yield GroupRewardSpec(
        "group_rm",
        _group_rm,
        RewardSettings,
        "async f(args, samples), slime's --custom-rm-path with --group-rm",
        timeout_s=120.0,
    )


def _group_rm(settings: RewardSettings, setup: Setup) -> GroupReward:
    from slime_compat.adapters import SlimeGroupReward

    return SlimeGroupReward(settings)


@hookimpl
def slime_generators() -> Iterable[GeneratorSpec]:
    """`--custom-generate-function-path`."""
    yield GeneratorSpec(
        "generate",
        _generate,
        GenerateSettings,
        "async f(args, sample, sampling_params), slime's --custom-generate-function-path",
        max_concurrency=MAX_OPEN,
    )


def _generate(settings: GenerateSettings, setup: Setup) -> Generator:
    from slime_compat.adapters import SlimeGenerate

    return SlimeGenerate(settings)


@hookimpl
def slime_group_filters() -> Iterable[GroupFilterSpec]:
    """`--dynamic-sampling-filter-path`."""
    summary = "f(args, group), slime's --dynamic-sampling-filter-path"
    yield GroupFilterSpec("dynamic_filter", _dynamic_filter, FunctionSettings, summary)


def _dynamic_filter(settings: FunctionSettings, setup: Setup) -> GroupFilter:
    from slime_compat.adapters import SlimeDynamicFilter

    return SlimeDynamicFilter(settings)


@hookimpl
def slime_sample_filters() -> Iterable[SampleFilterSpec]:
    """`--rollout-sample-filter-path`."""
    summary = "f(args, groups), slime's --rollout-sample-filter-path"
    yield SampleFilterSpec("rollout_filter", _rollout_filter, FunctionSettings, summary)


def _rollout_filter(settings: FunctionSettings, setup: Setup) -> SampleFilter:
    from slime_compat.adapters import SlimeSampleFilter

    return SlimeSampleFilter(settings)


@hookimpl
def slime_buffer_filters() -> Iterable[BufferFilterSpec]:
    """`--buffer-filter-path`."""
    summary = "f(args, None, buffer, n), slime's --buffer-filter-path"
    yield BufferFilterSpec("buffer_filter", _buffer_filter, FunctionSettings, summary)


def _buffer_filter(settings: FunctionSettings, setup: Setup) -> BufferFilter:
    from slime_compat.adapters import SlimeBufferFilter

    return SlimeBufferFilter(settings)


@hookimpl
def slime_reward_shapers() -> Iterable[RewardShaperSpec]:
    """`--custom-reward-post-process-path`."""
    summary = "f(args, samples), slime's --custom-reward-post-process-path"
    yield RewardShaperSpec("post_process", _post_process, FunctionSettings, summary)


def _post_process(settings: FunctionSettings, setup: Setup) -> RewardShaper:
    from slime_compat.adapters import SlimeRewardPostProcess

    return SlimeRewardPostProcess(settings)


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
    """What slime, TRL, verl, OpenRLHF and peft call our keys."""
    from slime_compat.names import foreign_names

    return foreign_names()
