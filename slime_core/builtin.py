"""The core's own plugin: the default choice of every role.

It is registered like any other plugin, through the same entry-point group, and a run can choose others instead.
Factories import their classes when called, so that listing plugins loads nothing heavy.
"""

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import cast

from slime_core.data.settings import JudgeSettings, MixtureSettings
from slime_core.errors import ConfigError
from slime_core.hookspecs import hookimpl
from slime_core.roles import (
    Buffer,
    BufferFilter,
    BufferFilterSpec,
    BufferSetup,
    BufferSpec,
    DataSource,
    DataSourceSetup,
    DataSourceSpec,
    Generator,
    GeneratorSpec,
    GroupFilter,
    GroupFilterSpec,
    GroupUse,
    Launcher,
    LauncherSetup,
    LauncherSpec,
    Reward,
    RewardSpec,
    SampleFilter,
    SampleFilterSpec,
    Settings,
    Setup,
)

SLIME_API = "1"
JUDGE_S = 300.0
"""Timeout of a judge in seconds, including its wait for other requests."""


@hookimpl
def slime_data_sources() -> Iterable[DataSourceSpec]:
    """Prompts from files."""
    yield DataSourceSpec("prompts", _prompts, summary="Rows of prompt_data, epoch after epoch")
    yield DataSourceSpec(
        "mixture", _mixture, MixtureSettings, "Several data sets, drawn from by weight", reads_prompt_data=False
    )


def _prompts(settings: Settings, setup: DataSourceSetup) -> DataSource:
    from slime_core.data import prompt_source

    return prompt_source(setup)


def _mixture(settings: MixtureSettings, setup: DataSourceSetup) -> DataSource:
    from slime_core.data import mixture_source

    return mixture_source(settings, setup)


@hookimpl
def slime_generators() -> Iterable[GeneratorSpec]:
    """One engine call."""
    yield GeneratorSpec("single_turn", _single_turn, summary="One prompt, one response", scores=False, text_only=True)


def _single_turn(settings: Settings, setup: Setup) -> Generator:
    from slime_core.rollout import SingleTurn

    return SingleTurn()


@hookimpl
def slime_rewards() -> Iterable[RewardSpec]:
    """Rewards that a generator computes itself, and a judge."""
    yield RewardSpec(
        "environment",
        _environment,
        summary="What the generator scored itself, as `sample.reward`",
        each_sample=True,
    )
    yield RewardSpec(
        "served_judge",
        _judge,
        JudgeSettings,
        "What a model says that the run serves beside the policy",
        timeout_s=JUDGE_S,
        models=lambda settings: (cast(JudgeSettings, settings).model,),
    )


def _judge(settings: JudgeSettings, setup: Setup) -> Reward:
    from slime_core.rollout.policy import Judge

    return Judge(settings, setup)


def _environment(settings: Settings, setup: Setup) -> Reward:
    from slime_core.rollout import Environment

    return Environment()


@hookimpl
def slime_group_filters() -> Iterable[GroupFilterSpec]:
    """Dynamic sampling."""
    yield GroupFilterSpec("nonzero_std", _nonzero_std, summary="Keep groups whose rewards differ")
    yield GroupFilterSpec(
        "nonzero_std_with_fallback",
        _nonzero_std_with_fallback,
        summary="The same, unless the rollout comes up short",
    )


def _nonzero_std(settings: Settings, setup: Setup) -> GroupFilter:
    from slime_core.rollout import NonzeroStd

    return NonzeroStd()


def _nonzero_std_with_fallback(settings: Settings, setup: Setup) -> GroupFilter:
    from slime_core.rollout import NonzeroStdWithFallback

    return NonzeroStdWithFallback()


@hookimpl
def slime_sample_filters() -> Iterable[SampleFilterSpec]:
    """Removes truncated responses."""
    yield SampleFilterSpec("truncated", _truncated, summary="Leave responses that were cut off out of training (DAPO)")


def _truncated(settings: Settings, setup: Setup) -> SampleFilter:
    from slime_core.rollout import Truncated

    return Truncated()


@hookimpl
def slime_buffers() -> Iterable[BufferSpec]:
    """First in, first out."""
    yield BufferSpec("fifo", _fifo, summary="Held groups, handed out by the buffer filter", uses_buffer_filter=True)


def _fifo(settings: Settings, setup: BufferSetup) -> Buffer:
    from slime_core.buffer import FifoBuffer

    return FifoBuffer(setup)


@hookimpl
def slime_buffer_filters() -> Iterable[BufferFilterSpec]:
    """Oldest first."""
    yield BufferFilterSpec("fifo", _oldest_first, summary="The oldest groups first")


def _oldest_first(settings: Settings, setup: Setup) -> BufferFilter:
    from slime_core.buffer import FifoFilter

    return FifoFilter()


@hookimpl
def slime_launchers() -> Iterable[LauncherSpec]:
    """Processes on this machine."""
    yield LauncherSpec(
        "local", _local_launcher, summary="Processes of this machine, one thread each", check=_check_local
    )


def _check_local(settings: Settings, uses: Sequence[GroupUse]) -> None:
    from slime_core.catalog import how_to_install

    if any(each.name == "trainer" for each in uses) and find_spec("slime_train") is None:
        raise ConfigError(
            "launcher 'local' starts the ranks of a trainer by slime-train, which is not installed. "
            f"{how_to_install('slime-train')}. Or choose a launcher that needs none"
        )


def _local_launcher(settings: Settings, setup: LauncherSetup) -> Launcher:
    from slime_core.processes.launcher import LocalLauncher

    return LocalLauncher(setup)
