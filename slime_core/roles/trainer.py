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
from slime_core.roles.launcher import Needs, Rendezvous
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
    """Added to the root of the second moment."""
    weight_decay: float
    """Decoupled weight decay of matrices."""
    clip_grad: float
    """Global gradient norm limit; 0 is off."""
    train_steps: int
    """Optimizer steps of the whole run, for the schedule."""
    lr_decay_iters: int | None = None
    """Steps after which the decay has ended; None: `train_steps`."""
    lr_wsd_decay_iters: int | None = None
    """Steps of the decay at the end of "WSD"."""
    lr_wsd_decay_style: str = "exponential"
    """Its shape: "exponential", "linear", "cosine" or "minus_sqrt"."""
    reset_optimizer_states: bool = False
    """Whether both moments are forgotten before a rollout's first step, and their bias is counted from there."""


# Companions: the models that a trainer holds beside the policy, and what each is for.

KlType = Literal["k1", "k2", "k3", "low_var_kl", "k1+", "k3+", "low_var_kl+"]
"""Estimators of a KL divergence (slime's `--kl-loss-type`); with a plus (verl's), the gradient is that of `k2`."""


class Companion(enum.Enum):
    """A kind of model beside the policy."""

    REFERENCE = "reference"
    """What the policy is kept near: `use_kl_loss`, `kl_coef`."""
    TEACHER = "teacher"
    """What the policy is distilled from: `use_opd`."""
    CRITIC = "critic"
    """What estimates values: the advantage estimator `ppo`."""
    OLD_ACTOR = "old policy's"
    """What generated the rollout that is trained on: `keep_old_actor`."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The reference model and the KL terms that need it."""

    load: Path
    """Model directory in HF format; of the policy's vocabulary."""
    update_interval: int | None = None
    """Rollouts after which it becomes the policy of that moment; None: never."""
    use_kl_loss: bool = False
    """Whether the KL to it is computed in the loss."""
    kl_loss_coef: float = 0.0
    """Weight of that term, in units of loss a nat; 0 reports it only."""
    kl_loss_type: KlType = "k1"
    """How a token's KL is estimated, in loss and rewards."""
    use_unbiased_kl: bool = False
    """Whether the loss's estimate is weighed by the ratio of the policy to the sampler, gradient included."""
    kl_coef: float = 0.0
    """What a nat of KL takes off a token's reward; 0: rewards are left alone."""


@dataclass(frozen=True, slots=True)
class Teacher:
    """On-policy distillation."""

    load: Path | None
    """Model directory in HF format, of the policy's vocabulary; None: samples bring `teacher_log_probs`."""
    kl_coef: float
    """What a nat of reverse KL takes off a token's advantage."""


@dataclass(frozen=True, slots=True)
class Critic:
    """The model of values, trained beside the policy."""

    load: Path
    """Model directory in HF format of the policy's vocabulary, to which a value head is added."""
    optim: Optim
    """Its optimizer's keys."""
    value_clip: float
    """How far a value may move from what it was before the rollout's training, before moving on pays no more."""
    num_critic_only_steps: int
    """Rollouts, from the first, in which the policy is not trained."""


@dataclass(frozen=True, slots=True)
class OldActor:
    """The weights that generated the rollout that is trained on."""

    lag: int
    """Rollouts that are generated ahead: 0, or 1 where the next one is generated while the trainer works."""


# SampleField: what a sample may bring for its training beyond tokens, masks and log-probs.

Carried: TypeAlias = "Json | Sequence[int]"
"""The value of such a field, as the sample has it."""


class SampleField(enum.Enum):
    """A field of `Sample`, by its name there."""

    ROLLOUT_ROUTED_EXPERTS = "rollout_routed_experts"
    """Experts that the sampler's routers chose, to be chosen again (routing replay)."""
    ROLLOUT_TOP_P_TOKEN_IDS = "rollout_top_p_token_ids"  # a field's name
    """Ids that top-p kept, for log-probs among these alone."""
    ROLLOUT_TOP_P_TOKEN_OFFSETS = "rollout_top_p_token_offsets"  # a field's name
    """Where each token's kept ids begin."""
    MULTIMODAL_TRAIN_INPUTS = "multimodal_train_inputs"
    """What a processor made of images, videos or audio."""
    MULTIMODAL_TRAIN_INPUT_ID = "multimodal_train_input_id"
    """Key of a shared processor output."""
    TRAIN_METADATA = "train_metadata"
    """Extra values for the trainer."""


INPUT_FIELDS = frozenset({SampleField.MULTIMODAL_TRAIN_INPUTS, SampleField.MULTIMODAL_TRAIN_INPUT_ID})
"""Part of the model's input: a trainer that does not read them cannot train on a sample that has them."""


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
    rendezvous: Rendezvous
    """Where the ranks of the group meet."""
    constant_loss_length: int | None = None
    """Tokens that a rollout's losses are divided by, instead of its own number of trained ones."""
    reference: Reference | None = None
    """What the policy is kept near, if anything."""
    teacher: Teacher | None = None
    """What the policy is distilled from, if anything."""
    critic: Critic | None = None
    """What estimates values, where the advantage estimator wants them."""
    old_actor: OldActor | None = None
    """Which older weights of the policy's are held, if any; `SeesPublication` tells a rank of them."""
    train_data: str | None = None
    """Where what is trained on is written; see `slime_train.save_train_data`."""
    float32_matmul_precision: str = "highest"
    """What fp32 matrices may be multiplied in, as torch has it; weights, gradient and optimizer stay in fp32."""
    bf16: bool = False
    """Compute in bf16; master weights, moments, log-probs and loss stay in fp32."""


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
    """Rollout of each sample; samples of one execution share a number. Numbers run from 0 over the whole step."""
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
    step: int = 0
    """Which optimizer step of that rollout it is, from 0."""
    columns_S: "Mapping[str, array[float]]" = field(default_factory=dict)
    """Columns of batch transforms with one number a sample."""
    columns_T: "Mapping[str, array[float]]" = field(default_factory=dict)
    """Columns of batch transforms with one number a response token."""
    fields_S: Mapping[SampleField, tuple[Carried, ...]] = field(default_factory=dict)
    """The fields that the trainer's spec says it reads, of each sample as it has them; None where it has none."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one rank reports of one step."""

    metrics: Mapping[str, float]
    """Sums over the tokens that the rank computed, by name."""
    tokens: int
    """How many tokens that is; the core divides the sums of all shares by the tokens of all shares."""
    scalars: Mapping[str, float]
    """Values that are equal on all ranks: grad_norm, lr."""
    scores: Mapping[int, float]
    """Mean absolute advantage of each of the rank's groups, by group index."""
    over_all_tokens: frozenset[str] = frozenset()
    """Metrics to which skipped tokens add 0 (a loss): the core divides their sums by all trained tokens of the step."""


@runtime_checkable
class TrainerRank(Protocol):
    """One process of training. Every method is called on all ranks together."""

    def weight_slots(self) -> Sequence[WeightSlot]:
        """What `weights` yields; rank 0's are what engines are promised."""
        ...

    def train_step(self, batch: TrainBatch) -> StepResult:
        """Forward, backward, all-reduce, clip and one optimizer step.

        Raises:
            NonFiniteError: loss or gradient is not finite; weights and optimizer are then unchanged.
        """
        ...

    def weights(self) -> "Iterator[tuple[str, torch.Tensor]]":
        """The current weights, bucket by bucket, in any order; exhausted on every rank: a bucket may be gathered.

        Rank 0 yields each of its slots once. Others may yield less: a transport takes from them what it can use.
        """
        ...

    def save(self, directory: Path, *, hf: bool = True) -> None:
        """Write what `load` needs, and with `hf` the model in HF format to `directory/hf`."""
        ...

    def load(self, directory: Path) -> None:
        """Continue from what `save` wrote."""
        ...


@runtime_checkable
class SeesRollout(Protocol):
    """A trainer's rank that looks at a whole rollout before its first step, as one must that keeps to slime's meaning.

    What is of the weights before the rollout is computed here: the policy's own log-probs, which later steps' ratios
    are taken against, what reference and teacher say, values; and advantages, so that whitening is over the rollout.
    """

    def begin_rollout(self, batches: Sequence[TrainBatch]) -> None:
        """Look at the rank's shares of all steps of a rollout, in their order.

        Called on all ranks together, once before the rollout's first `train_step`, whose batches are these.

        Raises:
            NonFiniteError: a log-prob is not finite.
        """
        ...


@runtime_checkable
class SeesPublication(Protocol):
    """A trainer's rank that is told of each version that engines were sent, for those that hold older ones."""

    def published(self, version: int) -> None:
        """The current weights are this version; told again where an engine comes late."""
        ...


@runtime_checkable
class MeasuresLoss(Protocol):
    """A trainer's rank that can also tell the loss of a batch that it does not train on; finetuning evaluates so."""

    def measure(self, batch: TrainBatch) -> StepResult:
        """The same sums as of `train_step`, without a gradient; nothing changes, and there are no scalars."""
        ...


@runtime_checkable
class SavesLater(Protocol):
    """A trainer's rank whose `save` returns with a copy of what is saved, before the files stand."""

    def finish_save(self, *, wait: bool) -> bool:
        """Whether the files of the last `save` stand; with `wait`, once they do. Asked between steps, on all ranks.

        Raises:
            Exception: they cannot be written.
        """
        ...


@runtime_checkable
class ClosesRank(Protocol):
    """A trainer's rank that holds what does not end by itself: a process group, a process that writes."""

    def close(self) -> None:
        """Called when the run is over and the rank idle, before its process ends; not where it is killed."""
        ...


class TrainerFactory(Protocol):
    """Builds one rank; called inside the rank's process."""

    def __call__(self, rank: int, world_size: int, setup: RankSetup) -> TrainerRank:
        """Return the rank."""
        ...


@dataclass(frozen=True, slots=True)
class TrainerUse:
    """What a run asks of its trainer, as far as it is known before anything starts."""

    bf16: bool = False
    """Whether it is to compute in bf16."""
    nodes: int = 1
    """Nodes that its ranks lie on, the same number on each; 1 where ranks need no GPU."""


@dataclass(frozen=True)
class TrainerSpec(Spec[TrainerRank]):
    """Offers a trainer; its factory is `factory(rank, world_size, setup)` and runs in the rank's process."""

    role: ClassVar[str] = "trainer"
    transports: tuple[str, ...] | None = None
    """Names of the transports that may carry its weights; None for any, as buckets are all that one needs."""
    world_size: Callable[[Settings], int] = lambda settings: 1
    """How many ranks these settings ask for."""
    shares: Callable[[Settings], Sequence[int]] | None = None
    """Share of a step by rank, numbered from 0 without gaps; ranks of one replica have the same. None: each its own."""
    check_model: Callable[[Settings, Mapping[str, object]], None] = lambda settings, model_config: None
    """Raises a `ConfigError` in the plan if settings and the model's config.json do not go together."""
    check_companion: Callable[[Settings, Mapping[str, object]], None] | None = None
    """The same for a reference, teacher or critic; None: `check_model` is used."""
    needs: Callable[[Settings], Needs] = lambda settings: Needs()
    """What each rank needs of its machine with these settings."""
    check: Callable[[Settings, TrainerUse], None] | None = None
    """Sees, before anything starts, that it can do what the run asks with these settings; raises ConfigError if not."""
    preload: tuple[str, ...] = ()
    """Modules that take long to import and may be imported once for all ranks: nothing in them starts a thread."""
    companions: frozenset[Companion] = frozenset()
    """Which models beside the policy it holds where the setup asks for them; others are refused."""
    bf16: bool = False
    """Whether it can compute in bf16, as `bf16 = true` asks; one that cannot is refused then."""
    reads: Callable[[Settings], frozenset[SampleField]] = lambda settings: frozenset()
    """Sample fields that it needs in `TrainBatch.fields_S`; a run whose engine and generator lack one is refused."""
    releases: MemoryTags = frozenset()
    """What memory its ranks can give up while engines generate; ranks that can are a `RankReleasesMemory`."""
    loads_without_hf: bool = False
    """Whether its `load` needs no `hf/`, so that `checkpoint_hf = false` may leave it out; refused then if not."""
    resets_optimizer: bool = False
    """Whether it does what `Optim.reset_optimizer_states` asks for; refused if not."""
    keeps_train_data: bool = False
    """Whether it writes what it trains on where `RankSetup.train_data` says; refused if not."""
    workers_key: str = ""
    """Setting for the ranks, set to `actor_num_nodes` times `actor_num_gpus_per_node`; "" refuses those keys."""

    def share_of_ranks(self, settings: Settings) -> tuple[int, ...]:
        """The share of each rank with these settings.

        Raises:
            ConfigError: `shares` gives another number of them than there are ranks, or leaves one out.
        """
        ranks = self.world_size(settings)
        given = tuple(range(ranks)) if self.shares is None else tuple(self.shares(settings))
        if len(given) != ranks or sorted(set(given)) != list(range(len(set(given)))):
            raise ConfigError(
                f"trainer {self.name!r}: shares gives {list(given)} for {ranks} ranks; expected one number a rank, "
                "from 0 without gaps"
            )
        return given
