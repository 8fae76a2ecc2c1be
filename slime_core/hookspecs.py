"""The hooks of plugins. Mark your functions with `@hookimpl`.

Each role has a provider hook, such as `slime_rewards` for `reward`: a plain function, called once per process, that
yields specs. Each event has a hook, such as `slime_run_start` for `RunStart`. Use a role to change data, and an
event's hook to observe.

A run hook may be `async def`; its return value is ignored. It is cancelled after 30 s, and disabled after three such
timeouts. Only `StopRun` ends the run; other exceptions are counted and logged once. A rank hook is a plain function;
an error in one ends the run on all ranks.

Example:

    SLIME_API = "1"

    @hookimpl
    def slime_rewards():
        yield RewardSpec("exact", ExactMatch, summary="1.0 when the stripped response equals the label")
"""

# mypy: disable-error-code="empty-body"

import re
from collections.abc import Awaitable, Iterable, Mapping
from typing import TypeVar

import pluggy

from slime_core import events, roles
from slime_core.events import Event, RankEvent
from slime_core.roles import SPECS

__all__ = [
    "API_VERSION",
    "HOOK_OF_EVENT",
    "HOOK_OF_RANK_EVENT",
    "NAMES_HOOK",
    "PROJECT",
    "PROVIDER_OF_ROLE",
    "ProviderHookSpecs",
    "RankHookSpecs",
    "RunHookSpecs",
    "hookimpl",
    "hookspec",
]

PROJECT = "slime"
API_VERSION = "1"
"""The value that a plugin declares as `SLIME_API`."""

hookimpl = pluggy.HookimplMarker(PROJECT)
hookspec = pluggy.HookspecMarker(PROJECT)
EventT = TypeVar("EventT")


class ProviderHookSpecs:
    """Hooks that yield a plugin's choices, which their specs document; called once per process."""

    @hookspec
    def slime_data_sources(self) -> Iterable[roles.DataSourceSpec]: ...

    @hookspec
    def slime_generators(self) -> Iterable[roles.GeneratorSpec]: ...

    @hookspec
    def slime_rewards(self) -> Iterable[roles.RewardSpec]: ...

    @hookspec
    def slime_group_rewards(self) -> Iterable[roles.GroupRewardSpec]: ...

    @hookspec
    def slime_group_filters(self) -> Iterable[roles.GroupFilterSpec]: ...

    @hookspec
    def slime_sample_filters(self) -> Iterable[roles.SampleFilterSpec]: ...

    @hookspec
    def slime_buffers(self) -> Iterable[roles.BufferSpec]: ...

    @hookspec
    def slime_buffer_filters(self) -> Iterable[roles.BufferFilterSpec]: ...

    @hookspec
    def slime_reward_shapers(self) -> Iterable[roles.RewardShaperSpec]: ...

    @hookspec
    def slime_batch_transforms(self) -> Iterable[roles.BatchTransformSpec]: ...

    @hookspec
    def slime_advantages(self) -> Iterable[roles.AdvantageSpec]: ...

    @hookspec
    def slime_losses(self) -> Iterable[roles.LossSpec]: ...

    @hookspec
    def slime_corrections(self) -> Iterable[roles.CorrectionSpec]: ...

    @hookspec
    def slime_engines(self) -> Iterable[roles.EngineSpec]: ...

    @hookspec
    def slime_trainers(self) -> Iterable[roles.TrainerSpec]: ...

    @hookspec
    def slime_transports(self) -> Iterable[roles.TransportSpec]: ...

    @hookspec
    def slime_launchers(self) -> Iterable[roles.LauncherSpec]: ...

    @hookspec
    def slime_trackers(self) -> Iterable[roles.TrackerSpec]: ...

    @hookspec
    def slime_checks(self) -> Iterable[roles.CheckSpec]: ...

    @hookspec
    def slime_foreign_names(self) -> Iterable[roles.ForeignName]: ...


class RunHookSpecs:
    """Observers of a run, in the driver; at most one call per tick of the scheduler. Each event documents its hook."""

    @hookspec
    def slime_run_start(self, event: events.RunStart) -> Awaitable[None] | None: ...

    @hookspec
    def slime_rollout_start(self, event: events.RolloutStart) -> Awaitable[None] | None: ...

    @hookspec
    def slime_samples_done(self, event: events.SamplesDone) -> Awaitable[None] | None: ...

    @hookspec
    def slime_groups_done(self, event: events.GroupsDone) -> Awaitable[None] | None: ...

    @hookspec
    def slime_rollout_end(self, event: events.RolloutEnd) -> Awaitable[None] | None: ...

    @hookspec
    def slime_train_step_end(self, event: events.TrainStepEnd) -> Awaitable[None] | None: ...

    @hookspec
    def slime_weights_published(self, event: events.WeightsPublished) -> Awaitable[None] | None: ...

    @hookspec
    def slime_checkpoint_saved(self, event: events.CheckpointSaved) -> Awaitable[None] | None: ...

    @hookspec
    def slime_checkpoint_loaded(self, event: events.CheckpointLoaded) -> Awaitable[None] | None: ...

    @hookspec
    def slime_eval_end(self, event: events.EvalEnd) -> Awaitable[None] | None: ...

    @hookspec
    def slime_run_end(self, event: events.RunEnd) -> Awaitable[None] | None: ...

    @hookspec
    def slime_run_failed(self, event: events.RunFailed) -> Awaitable[None] | None: ...


class RankHookSpecs:
    """Observers of a trainer rank, in its process, with handles to the backend's objects."""

    @hookspec
    def slime_train_init(self, event: events.TrainInit) -> None: ...

    @hookspec
    def slime_before_log_prob(self, event: events.BeforeLogProb) -> None: ...

    @hookspec
    def slime_before_train_step(self, event: events.BeforeTrainStep) -> None: ...


def _hooks_of(base: type[EventT]) -> dict[type[EventT], str]:
    """Map each event class to its hook: `RunStart` to `slime_run_start`."""
    own = [each for each in vars(events).values() if isinstance(each, type) and issubclass(each, base)]
    return {each: "slime" + re.sub("([A-Z])", r"_\1", each.__name__).lower() for each in own if each is not base}


HOOK_OF_EVENT: Mapping[type[Event], str] = _hooks_of(Event)
"""Run hook of each event class."""
HOOK_OF_RANK_EVENT: Mapping[type[RankEvent], str] = _hooks_of(RankEvent)
"""Rank hook of each event class."""
PROVIDER_OF_ROLE = {role: f"slime_{role}{'es' if role.endswith('s') else 's'}" for role in SPECS}
"""Provider hook of each role."""
NAMES_HOOK = "slime_foreign_names"
"""The provider hook without a role: it yields other frameworks' names as `ForeignName`."""
