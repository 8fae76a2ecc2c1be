"""The trainer role: one rank of synchronous SPMD training code, its batches, optimizer settings and companion models.

The core splits each step, dispatches the shares and gathers the results. Every rank receives its share of every
step, in the same order; rank 0 writes shared files. `reads` lists the sample fields that a trainer needs.

Example:

    TrainerSpec("mine", factory, reads=lambda settings: frozenset({SampleField.ROLLOUT_ROUTED_EXPERTS}))
    batch.fields_S[SampleField.ROLLOUT_ROUTED_EXPERTS][3]        # of the rank's fourth sample; None if it has none
"""

import enum
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

from slime_core.errors import ConfigError
from slime_core.roles.engine import MemoryTags
from slime_core.roles.launcher import Needs
from slime_core.roles.plugin_set import PluginSet
from slime_core.roles.spec import Settings, Spec
from slime_core.roles.weights import WeightSlot
from slime_core.sample import Json

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Optim:
    """The optimizer's shared keys, by Megatron's names."""

    lr: float
    """Peak learning rate."""
    lr_warmup_iters: int
    """Steps of linear warm-up."""
    lr_decay_style: str
    """"constant", "linear", "cosine", "inverse-square-root" or "WSD"."""
    min_lr: float
    """Where the decay ends."""
    adam_beta1: float
    """Decay of the first moment."""
    adam_beta2: float
    """Decay of the second moment."""
    adam_eps: float
    """Added to the square root of the second moment."""
    weight_decay: float
    """Decoupled weight decay of matrices."""
    clip_grad: float
    """Global gradient norm limit; 0 is off."""
    train_steps: int
    """Optimizer steps of the whole run, for the schedule."""
    lr_decay_iters: int | None = None
    """Step at which the decay ends; None: `train_steps`."""
    lr_wsd_decay_iters: int | None = None
    """Steps of the decay at the end of "WSD"."""
    lr_wsd_decay_style: str = "exponential"
    """Shape of that decay: "exponential", "linear", "cosine" or "minus_sqrt"."""
    reset_optimizer_states: bool = False
    """Whether both moments, and the step count of their bias correction, are reset before each rollout's first step."""


# Companions: the models that a trainer holds in addition to the policy, and their purposes.

KlType = Literal["k1", "k2", "k3", "low_var_kl", "k1+", "k3+", "low_var_kl+"]
"""Estimators of a KL divergence (slime's `--kl-loss-type`). With a plus (verl's), they use the gradient of `k2`."""


class Companion(enum.Enum):
    """A kind of model that a trainer holds in addition to the policy."""

    REFERENCE = "reference"
    """Model that the KL terms keep the policy near: `use_kl_loss`, `kl_coef`."""
    TEACHER = "teacher"
    """Model that the policy is distilled from: `use_opd`."""
    CRITIC = "critic"
    """Model that estimates values: the advantage estimator `ppo`."""
    OLD_ACTOR = "old policy's"
    """Weights that generated the current rollout: `keep_old_actor`."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The reference model and the KL terms that need it."""

    load: Path
    """Model directory in HF format, with the policy's vocabulary."""
    update_interval: int | None = None
    """Rollouts between updates to the current policy's weights; None: never updated."""
    use_kl_loss: bool = False
    """Whether the loss contains the KL to the reference."""
    kl_loss_coef: float = 0.0
    """Weight of that term, in loss per nat; 0 only reports it."""
    kl_loss_type: KlType = "k1"
    """Estimator of a token's KL, for loss and rewards."""
    use_unbiased_kl: bool = False
    """Whether the loss's estimate is weighted by the ratio of policy to sampler, including its gradient."""
    kl_coef: float = 0.0
    """Penalty on a token's reward per nat of KL; 0: no penalty."""


@dataclass(frozen=True, slots=True)
class Teacher:
    """On-policy distillation."""

    load: Path | None
    """Model directory in HF format, with the policy's vocabulary; None: samples carry `teacher_log_probs`."""
    kl_coef: float
    """Penalty on a token's advantage per nat of reverse KL."""


@dataclass(frozen=True, slots=True)
class Critic:
    """The value model, trained together with the policy."""

    load: Path
    """Model directory in HF format, with the policy's vocabulary. The trainer adds a value head."""
    optim: Optim
    """Optimizer keys of the critic."""
    value_clip: float
    """PPO value clip: changes beyond this range do not lower the loss."""
    num_critic_only_steps: int
    """Number of first rollouts that train only the critic."""


# SampleField: training data that a sample may carry in addition to tokens, masks and log-probs.

FieldValue: TypeAlias = "Json | Sequence[int]"
"""The value of such a field, in the sample's form."""


class SampleField(enum.Enum):
    """Name of a field of `Sample`."""

    ROLLOUT_ROUTED_EXPERTS = "rollout_routed_experts"
    """Experts that the sampler's routers chose, for routing replay."""
    ROLLOUT_TOP_P_TOKEN_IDS = "rollout_top_p_token_ids"  # a field's name
    """Ids that top-p kept. Log-probs are normalised over these ids only."""
    ROLLOUT_TOP_P_TOKEN_OFFSETS = "rollout_top_p_token_offsets"  # a field's name
    """Offset of each token's kept ids."""
    MULTIMODAL_TRAIN_INPUTS = "multimodal_train_inputs"
    """A processor's output for images, videos or audio."""
    MULTIMODAL_TRAIN_INPUT_ID = "multimodal_train_input_id"
    """Key of a shared processor output."""
    TRAIN_METADATA = "train_metadata"
    """Extra values for the trainer."""


INPUT_FIELDS = frozenset({SampleField.MULTIMODAL_TRAIN_INPUTS, SampleField.MULTIMODAL_TRAIN_INPUT_ID})
"""Fields that are model input. A trainer that does not read them cannot train on a sample that has them."""


# Trainer: one rank of synchronous SPMD training code. The core owns the driver side (split, dispatch, gather).


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
    """Arguments of a trainer rank; picklable."""

    hf_checkpoint: Path
    """Model directory in HF format."""
    optim: Optim
    """Optimizer keys."""
    advantage: Choice
    """The advantage estimator."""
    loss: Choice
    """The loss."""
    correction: Choice | None
    """The off-policy correction, if any."""
    plugins: PluginSet
    """Plugins that the rank loads, with the driver's versions."""
    settings: Settings
    """The trainer's own settings."""
    rollout_temperature: float
    """Sampling temperature. Log-probs are computed at the same temperature."""
    calculate_per_token_loss: bool
    """Mean over all tokens of the step, instead of the mean of per-rollout means."""
    seed: int
    """The run's seed."""
    rendezvous: str
    """URL of the process group's rendezvous: `file:///PATH` of a file that does not exist yet, on one node; else
    `tcp://ADDRESS:PORT`, where rank 0 listens."""
    constant_loss_length: int | None = None
    """Constant divisor of a rollout's summed loss, instead of its number of trained tokens."""
    reference: Reference | None = None
    """The reference model, if any."""
    teacher: Teacher | None = None
    """The teacher, if any."""
    critic: Critic | None = None
    """The critic, if the advantage estimator uses values."""
    old_actor_lag: int | None = None
    """Rollouts generated ahead, 0 or 1, for a rank that keeps the weights which generated a rollout (it implements
    `TracksVersions`); None: not kept."""
    train_data: str | None = None
    """Path for the training data that the rank writes; see `slime_train.save_train_data`."""
    float32_matmul_precision: str = "highest"
    """Precision of fp32 matrix products, by torch's names. Weights, gradient and optimizer stay in fp32."""
    bf16: bool = False
    """Compute in bf16; master weights, moments, log-probs and loss stay in fp32."""


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """One rank's share of one optimizer step; ragged columns are flat.

    Shape legend: P distinct prompts, S samples, T response tokens of all samples. Samples with the same prompt are
    contiguous, and a group is never split over ranks.
    """

    prompts_P: tuple[Sequence[int], ...]
    """Token ids of each distinct prompt."""
    prompt_index_S: "array[int]"
    """Prompt of each sample."""
    group_index_S: "array[int]"
    """Group of each sample, for normalisation. Numbers run from 0 over the whole step."""
    rollout_index_S: "array[int]"
    """Rollout of each sample; samples of one generator call share a number. Numbers run from 0 over the whole step."""
    response_lengths_S: "array[int]"
    """Response tokens of each sample."""
    rewards_S: "array[float]"
    """Rewards after the shapers."""
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
    """Rollouts with trained tokens in the whole step, over all ranks. Equals the samples if none fanned out."""
    rollout_id: int = 0
    """Number of the rollout that the step trains on."""
    step: int = 0
    """Number of the optimizer step within that rollout, from 0."""
    columns_S: "Mapping[str, array[float]]" = field(default_factory=dict)
    """Columns of batch transforms with one number per sample."""
    columns_T: "Mapping[str, array[float]]" = field(default_factory=dict)
    """Columns of batch transforms with one number per response token."""
    fields_S: Mapping[SampleField, tuple[FieldValue, ...]] = field(default_factory=dict)
    """Each sample's values of the fields in the spec's `reads`; None for a sample that lacks one."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """One rank's report on one step."""

    metrics: Mapping[str, float]
    """Sums over the tokens that the rank computed, by name."""
    tokens: int
    """Number of those tokens. The core divides the total of each sum by the total of tokens over all shares."""
    scalars: Mapping[str, float]
    """Values that are equal on all ranks, such as grad_norm and lr."""
    scores: Mapping[int, float]
    """Mean absolute advantage of each of the rank's groups, by group index."""
    over_all_tokens: frozenset[str] = frozenset()
    """Metrics to which skipped tokens add 0 (a loss). The core divides them by all trained tokens of the step."""


@runtime_checkable
class TrainerRank(Protocol):
    """One training process. Every method is called on all ranks together."""

    def weight_slots(self) -> Sequence[WeightSlot]:
        """Slots of what `weights` yields. Engines expect the slots of rank 0."""

    def train_step(self, batch: TrainBatch) -> StepResult:
        """Forward, backward, all-reduce, clip and one optimizer step.

        Raises:
            NonFiniteError: loss or gradient is not finite; weights and optimizer are then unchanged.
        """

    def weights(self) -> "Iterator[tuple[str, torch.Tensor]]":
        """Yield the current weights in any order. Every rank exhausts the iterator, because a bucket may be gathered.

        Rank 0 yields each of its slots once. Other ranks may yield fewer; a transport may use them.
        """

    def save(self, directory: Path, *, hf: bool = True) -> None:
        """Write a checkpoint for `load` and, with `hf`, the model in HF format to `directory/hf`."""

    def load(self, directory: Path) -> None:
        """Continue from a checkpoint of `save`."""


@runtime_checkable
class PreparesRollout(Protocol):
    """Optional: a trainer rank that processes a whole rollout before its first step, as slime's semantics require.

    It computes all that depends on the weights before the rollout: the policy's log-probs (the denominators of
    later steps' ratios), log-probs of reference and teacher, and values; also advantages, whitened over the rollout.
    """

    def begin_rollout(self, batches: Sequence[TrainBatch]) -> None:
        """Process the rank's shares of all steps of a rollout, in order.

        Called once on all ranks together, before the rollout's first `train_step`, with the batches of its steps.

        Raises:
            NonFiniteError: a log-prob is not finite.
        """


@runtime_checkable
class TracksVersions(Protocol):
    """Optional: a trainer rank that is notified of each version sent to engines, in order to hold older weights."""

    def published(self, version: int) -> None:
        """The current weights are this version. Called again if an engine receives it late."""


@runtime_checkable
class MeasuresLoss(Protocol):
    """Optional: a trainer rank that can compute the loss of a batch without training, for evaluation in finetuning."""

    def measure(self, batch: TrainBatch) -> StepResult:
        """The sums of `train_step` without a gradient. Changes no state and returns no scalars."""


@runtime_checkable
class SavesAsync(Protocol):
    """Optional: a trainer rank whose `save` copies the state and returns before the files are written."""

    def finish_save(self, *, wait: bool) -> bool:
        """Return whether the last `save` is on disk; `wait` blocks until then. Called between steps, on all ranks.

        Raises:
            Exception: the files cannot be written.
        """


@runtime_checkable
class ClosesRank(Protocol):
    """Optional: a trainer rank with resources to close, such as a process group or a writer process."""

    def close(self) -> None:
        """Called once the run is over and the rank idle, before its process ends; not called for a killed process."""


@dataclass(frozen=True, slots=True)
class TrainerUse:
    """What is known, before anything starts, of a run's demands on its trainer."""

    bf16: bool = False
    """Whether the run sets `bf16`."""
    nodes: int = 1
    """Nodes of its ranks, with equally many ranks on each; 1 if ranks need no GPU."""


@dataclass(frozen=True)
class TrainerSpec(Spec[TrainerRank]):
    """Offers a trainer; its factory is `factory(rank, world_size, setup)` and runs in the rank's process."""

    role: ClassVar[str] = "trainer"
    transports: tuple[str, ...] | None = None
    """Names of the transports that may carry its weights; None: any."""
    world_size: Callable[[Settings], int] = lambda settings: 1
    """Number of ranks with these settings."""
    shares: Callable[[Settings], Sequence[int]] | None = None
    """Number of each rank's share of a step, from 0 without gaps; equal within a replica. None: one share per rank."""
    check_model: Callable[[Settings, Mapping[str, object]], None] = lambda settings, model_config: None
    """Raises a `ConfigError` in the plan if the settings do not support the model's config.json."""
    check_companion: Callable[[Settings, Mapping[str, object]], None] | None = None
    """The same for a reference, teacher or critic; None: `check_model` is used."""
    needs: Callable[[Settings], Needs] = lambda settings: Needs()
    """Resources of each rank with these settings."""
    check: Callable[[Settings, TrainerUse], None] | None = None
    """Raises ConfigError, before anything starts, if these settings cannot do what the run needs."""
    preload: tuple[str, ...] = ()
    """Slow modules to import once for all ranks; their import must start no thread."""
    companions: frozenset[Companion] = frozenset()
    """Companion models that it supports."""
    bf16: bool = False
    """Whether it can compute in bf16."""
    reads: Callable[[Settings], frozenset[SampleField]] = lambda settings: frozenset()
    """Sample fields that it needs in `TrainBatch.fields_S`, from engine or generator."""
    releases: MemoryTags = frozenset()
    """Memory that its ranks can release while engines generate; a non-empty set requires `RankReleasesMemory`."""
    loads_without_hf: bool = False
    """Whether `load` works without `hf/` (`checkpoint_hf = false`)."""
    resets_optimizer: bool = False
    """Whether it supports `Optim.reset_optimizer_states`."""
    keeps_train_data: bool = False
    """Whether it writes its training data to `RankSetup.train_data`."""
    workers_key: str = ""
    """Name of the setting that receives `actor_num_nodes` times `actor_num_gpus_per_node`; "" rejects those keys."""

    def share_of_ranks(self, settings: Settings) -> tuple[int, ...]:
        """The share number of each rank with these settings.

        Raises:
            ConfigError: `shares` returns a wrong number of entries, or its numbers have a gap.
        """
        ranks = self.world_size(settings)
        given = tuple(range(ranks)) if self.shares is None else tuple(self.shares(settings))
        if len(given) != ranks or sorted(set(given)) != list(range(len(set(given)))):
            raise ConfigError(
                f"trainer {self.name!r}: shares gives {list(given)} for {ranks} ranks; expected one number a rank, "
                "from 0 without gaps"
            )
        return given
