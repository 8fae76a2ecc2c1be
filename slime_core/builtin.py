"""The core's own plugin: the default choice of every role.

It is registered like any other plugin, through the same entry-point group, and a run can choose others instead.
Factories resolve their classes when called, so that listing plugins loads nothing heavy.
"""

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pkgutil import resolve_name

from slime_core.data.settings import MixtureSettings
from slime_core.errors import ConfigError
from slime_core.hookspecs import hookimpl
from slime_core.roles import (
    BufferFilterSpec,
    BufferSpec,
    DataSourceSpec,
    GeneratorSpec,
    Isolation,
    LauncherSpec,
    RewardSpec,
    Settings,
    WorkerGroupSpec,
)

SLIME_API = "1"


@hookimpl
def slime_data_sources() -> Iterable[DataSourceSpec]:
    """Prompts from files."""
    yield DataSourceSpec(
        "prompts",
        lambda settings, setup: resolve_name("slime_core.data:prompt_source")(setup),
        summary="Rows of prompt_data, epoch after epoch",
    )
    yield DataSourceSpec(
        "mixture",
        lambda settings, setup: resolve_name("slime_core.data:mixture_source")(settings, setup),
        MixtureSettings,
        "Several data sets, drawn from by weight",
        reads_prompt_data=False,
    )


@hookimpl
def slime_generators() -> Iterable[GeneratorSpec]:
    """One engine call."""
    yield GeneratorSpec(
        "single_turn",
        lambda settings, setup: resolve_name("slime_core.rollout:SingleTurn")(),
        summary="One prompt, one response",
        scores=False,
        text_only=True,
    )


@hookimpl
def slime_rewards() -> Iterable[RewardSpec]:
    """The reward that a generator computes itself."""
    yield RewardSpec(
        "environment",
        lambda settings, setup: resolve_name("slime_core.rollout:Environment")(),
        summary="What the generator scored itself, as `sample.reward`",
        isolation=Isolation.LOOP,
        each_sample=True,
    )


@hookimpl
def slime_buffers() -> Iterable[BufferSpec]:
    """First in, first out."""
    yield BufferSpec(
        "fifo",
        lambda settings, setup: resolve_name("slime_core.buffer:FifoBuffer")(setup),
        summary="Held groups, handed out by the buffer filter",
        uses_buffer_filter=True,
    )


@hookimpl
def slime_buffer_filters() -> Iterable[BufferFilterSpec]:
    """Oldest first."""
    yield BufferFilterSpec(
        "fifo",
        lambda settings, setup: resolve_name("slime_core.buffer:FifoFilter")(),
        summary="The oldest groups first",
    )


@hookimpl
def slime_launchers() -> Iterable[LauncherSpec]:
    """Processes on this machine."""
    yield LauncherSpec(
        "local",
        lambda settings, setup: resolve_name("slime_core.processes.launcher:LocalLauncher")(setup),
        summary="Processes of this machine, one thread each",
        check=_check_local,
    )


def _check_local(settings: Settings, uses: Sequence[WorkerGroupSpec]) -> None:
    from slime_core.catalog import install_advice

    if any(each.name == "trainer" for each in uses) and find_spec("slime_train") is None:
        raise ConfigError(
            "launcher 'local' starts the ranks of a trainer by slime-train, which is not installed. "
            f"{install_advice('slime-train')}. Or choose a launcher that needs none"
        )
