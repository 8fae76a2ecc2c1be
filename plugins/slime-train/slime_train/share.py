"""Share: a rank's batch as tensors, with what models and the advantage estimator add to it before its step.

Example:

    share = Share.of(batch, setup)
    share.batch.group_index_S, share.mask_T, share.tokens_of([0, 2])      # of two samples, their places in [T]
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import torch

from slime_core.errors import RunFolderError
from slime_core.roles import AdvantageInput, LossInput, RankSetup, StepResult, TrainBatch


@dataclass(frozen=True, slots=True)
class Share:
    """Shape legend: S samples, T response tokens; float32 unless said otherwise.

    The fields from `old_log_probs_T` to `values_T` are the trainer's to fill (`dataclasses.replace`), those after them
    `Algorithm.estimate` fills.
    """

    batch: TrainBatch
    """The batch from the driver."""
    lengths_S: torch.Tensor
    """Response tokens of each sample, int64 [S]."""
    starts_S: Sequence[int]
    """Where each sample's tokens begin in [T], and at last where they end: S + 1 numbers."""
    sample_T: torch.Tensor
    """Sample of each token, int64 [T]."""
    mask_T: torch.Tensor
    """1 where trained on [T]."""
    weight_T: torch.Tensor
    """Weight of each token's loss in the step's [T]; see `token_weights`."""
    rollout_log_probs_T: torch.Tensor
    """The sampler's log-probs [T]."""
    columns_S: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Columns of batch transforms with one number per sample [S]."""
    columns_T: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Columns of batch transforms with one number per token [T]."""
    old_log_probs_T: torch.Tensor | None = None
    """Log-probs under the policy before training on the rollout [T], of samples with a signal. None: the current ones
    are used, which are identical at step 0."""
    ref_log_probs_T: torch.Tensor | None = None
    """The reference's log-probs [T], of samples with a trained token; None without a reference."""
    teacher_log_probs_T: torch.Tensor | None = None
    """Log-probs [T] of the trainer's teacher, of samples with a trained token; None without one, or from a column."""
    values_T: torch.Tensor | None = None
    """The critic's values before the rollout was trained on [T], of samples with a trained token; None without one."""
    kl_penalty_T: torch.Tensor | None = None
    """KL penalty to the reference, subtracted from the rewards [T]; 0 where the mask is 0."""
    reverse_kl_T: torch.Tensor | None = None
    """The reverse KL to the teacher in nats, estimated by k1 [T]; 0 where the mask is 0."""
    advantages_T: torch.Tensor | None = None
    """From the advantage estimator [T]."""
    returns_T: torch.Tensor | None = None
    """Targets of the critic's values [T]; None without a critic."""

    @classmethod
    def of(cls, batch: TrainBatch, setup: RankSetup) -> "Share":
        """The batch's columns, on torch's default device."""
        lengths_S = torch.tensor(batch.response_lengths_S, dtype=torch.int64)
        sample_T = torch.arange(len(lengths_S)).repeat_interleave(lengths_S)
        mask_T = torch.tensor(batch.loss_mask_T, dtype=torch.float32)
        weight_T = token_weights(
            mask_T,
            sample_T,
            torch.tensor(batch.weights_S, dtype=torch.float32),
            torch.tensor(batch.rollout_index_S, dtype=torch.int64),
            step_tokens=batch.step_tokens,
            step_samples=batch.step_samples,
            per_token=setup.calculate_per_token_loss,
            constant_length=setup.constant_loss_length,
        )
        rollout_log_probs_T = torch.tensor(batch.rollout_log_probs_T, dtype=torch.float32)
        columns = _tensors(batch.columns_S), _tensors(batch.columns_T)
        starts_S = [0, *lengths_S.cumsum(0).tolist()]
        return cls(batch, lengths_S, starts_S, sample_T, mask_T, weight_T, rollout_log_probs_T, *columns)

    def tokens_of(self, samples: Sequence[int]) -> torch.Tensor:
        """Places of some samples' response tokens, one sample after another, int64 [their tokens]."""
        return torch.cat([torch.arange(self.starts_S[each], self.starts_S[each + 1]) for each in samples])

    def samples_with(self, signal_T: torch.Tensor) -> list[int]:
        """The samples that have a token with a signal over 0."""
        live_S = torch.zeros(len(self.lengths_S)).index_add_(0, self.sample_T, signal_T)
        return [sample for sample, signal in enumerate(live_S.tolist()) if signal > 0]

    def scores(self) -> dict[int, float]:
        """Mean absolute advantage over each group's trained tokens; advantages are estimated by now."""
        assert self.advantages_T is not None
        group_T = torch.tensor(self.batch.group_index_S, dtype=torch.int64)[self.sample_T]
        size = int(group_T.max()) + 1 if len(group_T) else 0
        total = torch.zeros(size).index_add_(0, group_T, self.advantages_T.abs() * self.mask_T)
        count = torch.zeros(size).index_add_(0, group_T, self.mask_T).clamp_min_(1.0)
        mean = (total / count).tolist()
        return {group: mean[group] for group in sorted(set(self.batch.group_index_S))}


def _tensors(columns: Mapping[str, Sequence[float]]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(values, dtype=torch.float32) for name, values in columns.items()}


def advantage_input(shares: Sequence[Share], sum_over_ranks: Callable[[torch.Tensor], torch.Tensor]) -> AdvantageInput:
    """Join shares and renumber groups, rollouts and samples. Either all shares have values (or penalties), or none."""
    batches = [share.batch for share in shares]

    def joined(values: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
        given = [each for each in values if each is not None]
        return _concatenated(given) if given else None

    return AdvantageInput(
        torch.tensor([reward for batch in batches for reward in batch.rewards_S], dtype=torch.float32),
        _renumbered([torch.tensor(batch.group_index_S, dtype=torch.int64) for batch in batches]),
        _renumbered([torch.tensor(batch.rollout_index_S, dtype=torch.int64) for batch in batches]),
        _renumbered([share.sample_T for share in shares], [len(share.lengths_S) for share in shares]),
        _concatenated([share.mask_T for share in shares]),
        {name: _concatenated([share.columns_S[name] for share in shares]) for name in shares[0].columns_S},
        {name: _concatenated([share.columns_T[name] for share in shares]) for name in shares[0].columns_T},
        sum_over_ranks,
        joined([share.kl_penalty_T for share in shares]),
        joined([share.values_T for share in shares]),
    )


def _concatenated(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _renumbered(parts: Sequence[torch.Tensor], sizes: Sequence[int] | None = None) -> torch.Tensor:
    found, first = [], 0
    for place, part in enumerate(parts):
        found.append(part + first)
        first += sizes[place] if sizes is not None else int(part.max()) + 1 if len(part) else 0
    return _concatenated(found)


GIVEN_S = ("prompt_index_S", "group_index_S", "rollout_index_S", "response_lengths_S", "rewards_S", "weights_S")


def save_train_data(template: str, shares: Sequence[Share], rank: int) -> Path:
    """Write a rollout's shares, one per step, before its first step; returns the path.

    Args:
        template: a path with `{rollout_id}` and `{rank}` in it, both as numbers.
        shares: with their advantages.
        rank: number of the share.

    Raises:
        RunFolderError: it could not be written; a file that was there stays.
    """
    from safetensors.torch import save_file

    rollout_id = shares[0].batch.rollout_id
    path = Path(template.format(rollout_id=rollout_id, rank=rank))
    columns = {name: value.contiguous().cpu() for share in shares for name, value in _columns(share)}
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(columns, temporary, {"rollout_id": str(rollout_id), "rank": str(rank), "steps": str(len(shares))})
        temporary.replace(path)
    except OSError as error:
        raise RunFolderError(f"cannot write save_debug_train_data {path}: {error}") from error
    return path


def _columns(share: Share) -> Iterator[tuple[str, torch.Tensor]]:
    batch, step = share.batch, share.batch.step
    prompts = [token for prompt in batch.prompts_P for token in prompt]
    yield f"{step}/prompts", torch.tensor(prompts, dtype=torch.int64)
    yield f"{step}/prompt_lengths_P", torch.tensor([len(prompt) for prompt in batch.prompts_P], dtype=torch.int64)
    yield f"{step}/tokens_T", torch.tensor(batch.tokens_T, dtype=torch.int64)
    for name in GIVEN_S:
        values = getattr(batch, name)
        yield f"{step}/{name}", torch.tensor(values, dtype=torch.int64 if values.typecode in "iq" else torch.float32)
    for each in fields(share):
        value = getattr(share, each.name)
        if isinstance(value, torch.Tensor) and each.name.endswith("_T") and each.name != "sample_T":
            yield f"{step}/{each.name}", value
    for kind in ("columns_S", "columns_T"):
        for name, value in getattr(share, kind).items():
            yield f"{step}/{kind}/{name}", value


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Loss and metrics of some samples."""

    loss: torch.Tensor
    """Their part of the step's loss, a number with the gradient: parts of all micro-batches and shares add up to it."""
    metrics: Mapping[str, float]
    """Sums over their trained tokens."""
    tokens: int
    """Number of their trained tokens."""
    over_all_tokens: frozenset[str]
    """Metrics to which a token skipped for zero advantage would add 0."""
    log_ratio_T: torch.Tensor
    """Log-probs minus the sampler's, of the trained tokens."""

    @classmethod
    def of(
        cls,
        loss: torch.Tensor,
        metrics_T: Mapping[str, torch.Tensor],
        over_all_tokens: frozenset[str],
        given: LossInput,
    ) -> "MicroBatch":
        """Sum metrics [T] over the trained tokens of the loss input."""
        mask_T = given.loss_mask_T
        metrics = {name: float((values_T.detach() * mask_T).sum()) for name, values_T in metrics_T.items()}
        log_ratio_T = (given.log_probs_T.detach() - given.rollout_log_probs_T)[mask_T > 0]
        return cls(loss, metrics, int(mask_T.sum()), over_all_tokens, log_ratio_T)


class Sums:
    """Adds up the micro-batches of a share."""

    def __init__(self) -> None:
        """No micro-batch was added yet."""
        self._metrics: defaultdict[str, float] = defaultdict(float)
        self._tokens = 0
        self._over_all_tokens: frozenset[str] = frozenset()
        self._log_ratios = [torch.empty(0)]

    def add(self, part: MicroBatch) -> None:
        """Add one micro-batch."""
        self._tokens += part.tokens
        self._over_all_tokens |= part.over_all_tokens
        self._log_ratios.append(part.log_ratio_T)
        for name, value in part.metrics.items():
            self._metrics[name] += value

    def log_ratios(self) -> torch.Tensor:
        """Log-probs minus the sampler's, of all trained tokens that were computed [T]; for `mismatch_extremes`."""
        return torch.cat(self._log_ratios)

    def result(self, share: Share, scalars: Mapping[str, float]) -> StepResult:
        """The rank's report of its share."""
        return StepResult(dict(self._metrics), self._tokens, scalars, share.scores(), self._over_all_tokens)


def token_weights(
    loss_mask_T: torch.Tensor,
    sample_index_T: torch.Tensor,
    importance_S: torch.Tensor,
    rollout_index_S: torch.Tensor,
    *,
    step_tokens: int,
    step_samples: int,
    per_token: bool,
    constant_length: int | None,
) -> torch.Tensor:
    """The weight [T] of each token in the step's loss; 0 where the mask is 0.

    With mask m, importance w and n_r = the sum of m over all samples of rollout r, which is one sample unless one
    execution fanned out:

    - per token (`calculate_per_token_loss`): w_s m_t / step_tokens, the mean over all trained tokens of the step, as
      DAPO has it (Yu et al. 2025, arXiv:2503.14476, equation 8);
    - constant (`constant_loss_length` L): w_s m_t / L / step_samples, without a bias by length, as Dr.GRPO has it (Liu
      et al. 2025, arXiv:2503.20783, section 3.2);
    - else: w_s m_t / n_r / step_samples, the mean over rollouts of each one's mean over its trained tokens, as GRPO has
      it (Shao et al. 2024, arXiv:2402.03300, equation 3).

    Denominators are of whole rollouts and of the whole step: however these samples are cut into micro-batches
    afterwards, and the step into ranks, the parts add up to it.

    Args:
        loss_mask_T: 1 where trained on, float32 [T].
        sample_index_T: sample of each token, int64 [T].
        importance_S: importance weight of each sample, float32 [S].
        rollout_index_S: rollout of each sample, int64 [S]; all samples of a rollout are among these.
        step_tokens: trained tokens of the whole step, over all ranks.
        step_samples: rollouts of the whole step with a trained token, over all ranks.
        per_token: whether it is the mean over tokens.
        constant_length: L in tokens, or None.
    """
    weighted_T = loss_mask_T * importance_S[sample_index_T]
    if per_token:
        return weighted_T / max(1, step_tokens)
    if constant_length is not None:
        return weighted_T / constant_length / max(1, step_samples)
    _, rollout_S = torch.unique(rollout_index_S, return_inverse=True)
    rollout_T = rollout_S[sample_index_T]
    trained_R = torch.zeros_like(importance_S).index_add_(0, rollout_T, loss_mask_T)
    return weighted_T / trained_R.clamp_min(1)[rollout_T] / max(1, step_samples)
