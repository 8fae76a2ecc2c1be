"""Trainer: one rank of synchronous SPMD training code. The core owns the driver side (split, dispatch, gather).

All ranks get their share of every step, in the same order; rank 0 writes what is shared.
"""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from slime_core.roles._plugin_set import PluginSet
from slime_core.roles._spec import Settings, Spec, Stability
from slime_core.roles.companions import Companion, Critic, Reference, Teacher
from slime_core.roles.optim import Optim
from slime_core.roles.weights import Transport, WeightSlot

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen spec and its validated settings, to be built again in another process."""

    role: str
    """Role name."""
    name: str
    """Spec name, as registered."""
    plugin: str
    """The plugin that registered it."""
    settings: Settings
    """Its settings."""


@dataclass(frozen=True, slots=True)
class RankSetup:
    """What a rank is built from; picklable."""

    hf_checkpoint: Path
    """Model directory in HF format."""
    optim: Optim
    """Optimizer keys."""
    advantage: Choice
    """Which advantage estimator."""
    loss: Choice
    """Which loss."""
    correction: Choice | None
    """Which off-policy correction, if any."""
    plugins: PluginSet
    """Which plugins the rank loads, and in which versions the driver has them."""
    settings: Settings
    """The trainer's own settings."""
    rollout_temperature: float
    """Log-probs are of the distribution tempered by it, as sampled."""
    calculate_per_token_loss: bool
    """Mean over all tokens of the step, instead of the mean of per-rollout means."""
    seed: int
    """The run's seed."""
    rendezvous: Path
    """A file that does not exist yet, where the ranks of the group meet."""
    constant_loss_length: int | None = None
    """Tokens that a rollout's losses are divided by, instead of its own number of trained ones."""
    reference: Reference | None = None
    """What the policy is kept near, if anything."""
    teacher: Teacher | None = None
    """What the policy is distilled from, if anything."""
    critic: Critic | None = None
    """What estimates values, where the advantage estimator wants them."""
    float32_matmul_precision: str = "highest"
    """What fp32 matrices may be multiplied in, as torch has it; weights, gradient and optimizer stay in fp32."""


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """One rank's share of one optimizer step, ragged columns flat.

    Shape legend: P distinct prompts, S samples, T response tokens of all samples. Samples with one prompt are
    neighbours, and a group is never split over ranks.
    """

    prompts_P: tuple[Sequence[int], ...]
    """Token ids of each distinct prompt."""
    prompt_index_S: "array[int]"
    """Which prompt each sample answers."""
    group_index_S: "array[int]"
    """Which group each sample is normalised with; numbers run from 0 over the whole step."""
    rollout_index_S: "array[int]"
    """Which rollout each sample is of: samples that one execution fanned out into share a number, all others have
    their own; numbers run from 0 over the whole step."""
    response_lengths_S: "array[int]"
    """Response tokens of each sample."""
    rewards_S: "array[float]"
    """Rewards, shaped."""
    weights_S: "array[float]"
    """Importance weights from the buffer."""
    tokens_T: "array[int]"
    """Response token ids."""
    loss_mask_T: "array[int]"
    """1 where trained on."""
    rollout_log_probs_T: "array[float]"
    """The sampler's log-probs."""
    step_tokens: int
    """Trained tokens of the whole step, over all ranks."""
    step_samples: int
    """Rollouts with trained tokens of the whole step, over all ranks: samples, where none fanned out."""
    rollout_id: int = 0
    """Number of the rollout that the step trains on."""
    columns_S: "Mapping[str, array[float]]" = field(default_factory=dict)
    """Columns of batch transforms with one number a sample."""
    columns_T: "Mapping[str, array[float]]" = field(default_factory=dict)
    """Columns of batch transforms with one number a response token."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one rank reports of one step."""

    metrics: Mapping[str, float]
    """Sums over the tokens that the rank computed, by name."""
    tokens: int
    """How many tokens that is; the core divides the sums of all ranks by the tokens of all ranks."""
    scalars: Mapping[str, float]
    """Values that are equal on all ranks: grad_norm, lr."""
    scores: Mapping[int, float]
    """Mean absolute advantage of each of the rank's groups, by group index."""


@runtime_checkable
class TrainerRank(Protocol):
    """One process of training. Every method is called on all ranks together."""

    def weight_slots(self) -> Sequence[WeightSlot]:
        """Layout in which `weights` yields."""
        ...

    def train_step(self, batch: TrainBatch) -> StepResult:
        """Forward, backward, all-reduce, clip and one optimizer step.

        Raises:
            NonFiniteError: loss or gradient is not finite; weights and optimizer are then unchanged.
        """
        ...

    def weights(self) -> "Iterator[tuple[str, torch.Tensor]]":
        """The current weights, bucket by bucket, in the order of `weight_slots`; rank 0's are sent."""
        ...

    def save(self, directory: Path) -> None:
        """Write the model in HF format to `directory/hf` and the optimizer beside it."""
        ...

    def load(self, directory: Path) -> None:
        """Continue from what `save` wrote."""
        ...


@runtime_checkable
class MeasuresLoss(Protocol):
    """A trainer's rank that can also tell the loss of a batch that it does not train on; finetuning evaluates so."""

    def measure(self, batch: TrainBatch) -> StepResult:
        """The same sums as of `train_step`, without a gradient; nothing changes, and there are no scalars."""
        ...


class TrainerFactory(Protocol):
    """Builds one rank; called inside the rank's process."""

    def __call__(self, rank: int, world_size: int, setup: RankSetup) -> TrainerRank:
        """Return the rank."""
        ...


@dataclass(frozen=True)
class TrainerSpec(Spec[TrainerRank]):
    """Offers a trainer; its factory is `factory(rank, world_size, setup)` and runs in the rank's process."""

    role: ClassVar[str] = "trainer"
    stability: ClassVar[Stability] = Stability.PROVISIONAL
    transports: tuple[Transport, ...] = ()
    """Ways of sending weights that it knows."""
    world_size: Callable[[Settings], int] = lambda settings: 1
    """How many ranks these settings ask for."""
    companions: frozenset[Companion] = frozenset()
    """Which models beside the policy it holds where the setup asks for them; others are refused."""
