"""Scheduler: what every policy of filling rollouts shares; each policy says when groups are drawn and handed over.

Example:

    scheduler = Waves(Parts(policy, source, engine, tokenizer, choices, None, [], emit))
    result = await scheduler.collect(rollout_id=3, want=64)
    scheduler.look_ahead(rollout_id=4, want=64)         # while the trainer works
    await scheduler.settle()                            # before the weights change
    scheduler.published(version=4)
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass

from slime_core.catalog.used import Used
from slime_core.errors import CheckpointError
from slime_core.events import Event
from slime_core.roles import DataSource, Engine, GroupFilter, SampleFilter, Tokenizer
from slime_core.rollout.choices import Choices
from slime_core.rollout.policy import RolloutPolicy
from slime_core.rollout.sieve import Sieve
from slime_core.rollout.tally import joined_metrics
from slime_core.rollout.work import RunGroup, SampleRunner
from slime_core.sample import Group, GroupId, Json, Status


@dataclass(frozen=True, slots=True)
class RolloutResult:
    """A finished rollout."""

    kept: Sequence[Group]
    """Groups to train on, frozen, oldest first; surplus ones included, for the buffer."""
    dropped: Sequence[Group]
    """The others, frozen."""
    reasons: Mapping[GroupId, str]
    """Why each dropped group was."""
    metrics: Mapping[str, float]
    """Under slime's names."""
    failed: Sequence[Group] = ()
    """Samples that failed, frozen, by the groups that went on without them, whenever these are handed over."""

    def joined(self, later: "RolloutResult") -> "RolloutResult":
        """Both, as one rollout; its means are those of the parts, weighted by their kept groups."""
        return RolloutResult(
            [*self.kept, *later.kept],
            [*self.dropped, *later.dropped],
            {**self.reasons, **later.reasons},
            joined_metrics((self.metrics, len(self.kept)), (later.metrics, len(later.kept))),
            [*self.failed, *later.failed],
        )


@dataclass(frozen=True, slots=True)
class Parts:
    """What a scheduler works with."""

    policy: RolloutPolicy
    """How to run."""
    source: DataSource
    """Where prompts come from."""
    engine: Engine
    """What generates; started by the caller."""
    tokenizer: Tokenizer
    """The policy's."""
    choices: Choices
    """How samples are run and scored."""
    group_filter: Used[GroupFilter] | None
    """Which groups are kept; None keeps all."""
    sample_filters: Sequence[Used[SampleFilter]]
    """Which samples of the kept groups are not trained on, one after another."""
    emit: Callable[[Event], Awaitable[None]]
    """Told of finished samples and groups."""


class Scheduler(ABC):
    """Fills rollouts. One `collect` at a time."""

    def __init__(self, parts: Parts) -> None:
        self.policy = policy = parts.policy
        """How it runs."""
        self.runner = SampleRunner(policy=policy, engine=parts.engine, tokenizer=parts.tokenizer, choices=parts.choices)
        """Runs the samples; evaluation shares its slots."""
        self.emit = parts.emit
        """Where events go."""
        self._source = parts.source
        self._sieve = Sieve(policy=policy, group_filter=parts.group_filter, sample_filters=parts.sample_filters)

    @property
    def waiting_for(self) -> str:
        """What the samples in flight wait for: "engine: 37 samples"."""
        return self.runner.waiting.text

    @abstractmethod
    async def collect(self, rollout_id: int, want: int) -> RolloutResult:
        """Hand over at least `want` kept groups.

        Raises:
            RolloutError: too many samples failed, or too few groups were kept of many that were drawn.
            ContractError: a filter's answer breaks its contract.
            PluginError: a filter raised.
            WorkerError: the engine is gone.
        """

    def look_ahead(self, rollout_id: int, want: int) -> None:
        """The trainer begins to work; what may be generated meanwhile, for this next rollout, may begin too."""

    async def settle(self) -> None:
        """The weights are about to change; returns when nothing stands in the way. Errors as in `collect`."""

    def published(self, version: int) -> None:
        """The engine has a new version of the weights."""

    def undisturbed(self) -> AbstractAsyncContextManager[None]:
        """While entered, no draw is half done, so that the state is whole."""
        return nullcontext()

    def live(self) -> tuple[int, int]:
        """Groups drawn and not finished, and finished ones that no `collect` handed over."""
        return 0, 0

    def state_dict(self) -> dict[str, Json]:
        """What was drawn or finished and not yet handed over, as plain JSON."""
        return {}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue from a saved state; work that was in flight goes back to the data source, to be run again.

        Raises:
            CheckpointError: another policy left unfinished work.
        """
        refuse_foreign(state, set())

    async def close(self) -> None:
        """End all work in flight; no task is left."""


def refuse_foreign(state: Mapping[str, Json], keys: set[str]) -> None:
    """Refuse unfinished work that has other parts than these.

    Raises:
        CheckpointError: it does.
    """
    if state and set(state) != keys:
        raise CheckpointError(
            f"the checkpoint holds unfinished work of another rollout_policy ({', '.join(sorted(state))}): continue "
            "with the rollout_policy and the partial_rollout that it was made with"
        )


def is_interrupted(group: RunGroup) -> bool:
    """Whether an engine ended one of its samples before its time."""
    return any(scored.sample.status is Status.ABORTED for scored in group.scored)
