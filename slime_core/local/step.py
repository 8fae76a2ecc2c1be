"""One rank's gradient of one step: advantages, micro-batches, forward, loss, backward into one flat vector."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from slime_core.errors import NonFiniteError
from slime_core.local.model import GroupTokens, LocalModel
from slime_core.roles import Advantage, AdvantageInput, Loss, LossInput, TrainBatch
from slime_core.train.reduce import token_weights

TOKENS = "tokens"


@dataclass(frozen=True, slots=True)
class StepSums:
    """What one rank's share of a step came to."""

    metrics: dict[str, float]
    """Sums over trained tokens that were computed."""
    tokens: int
    """How many tokens that is."""
    scores: dict[int, float]
    """Mean absolute advantage of each group."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """A batch as tensors. S samples, T response tokens."""

    lengths_S: torch.Tensor
    starts_S: list[int]
    sample_T: torch.Tensor
    mask_T: torch.Tensor
    old_T: torch.Tensor
    advantage_T: torch.Tensor
    weight_T: torch.Tensor


class LocalStep:
    """Computes gradients; knows nothing of other ranks and of the optimizer."""

    def __init__(
        self,
        *,
        model: LocalModel,
        advantage: Advantage,
        loss: Loss,
        skip_zero_advantage: bool,
        temperature: float,
        per_token: bool,
        max_tokens: int,
    ) -> None:
        """Take the parts."""
        self._model, self._advantage, self._loss = model, advantage, loss
        self._skip, self._temperature = skip_zero_advantage, temperature
        self._per_token, self._max_tokens = per_token, max_tokens
        self._gradient = torch.zeros(model.numel)

    def run(self, batch: TrainBatch) -> tuple[torch.Tensor, StepSums]:
        """Gradient [N] and sums of a rank's share.

        Raises:
            NonFiniteError: a log-prob or the loss is not finite.
        """
        self._gradient.zero_()
        sums: defaultdict[str, float] = defaultdict(float)
        if not len(batch.rewards_S):
            return self._gradient, StepSums({}, 0, {})
        columns = self._columns(batch)
        for samples in self._micro_batches(batch, columns):
            self._backward(batch, columns, samples, sums)
        tokens = int(sums.pop(TOKENS, 0.0))
        return self._gradient, StepSums(dict(sums), tokens, _scores(batch, columns))

    def _columns(self, batch: TrainBatch) -> _Columns:
        lengths = torch.tensor(batch.response_lengths_S, dtype=torch.int64)
        sample_T = torch.arange(len(lengths)).repeat_interleave(lengths)
        mask = torch.tensor(batch.loss_mask_T, dtype=torch.float32)
        rewards = torch.tensor(batch.rewards_S, dtype=torch.float32)
        groups = torch.tensor(batch.group_index_S, dtype=torch.int64)
        advantage = self._advantage(AdvantageInput(rewards, groups, sample_T, mask))
        weights = torch.tensor(batch.weights_S, dtype=torch.float32)
        starts = [0, *lengths.cumsum(0).tolist()]
        old = torch.tensor(batch.rollout_log_probs_T, dtype=torch.float32)
        weight_T = token_weights(
            mask,
            sample_T,
            weights,
            step_tokens=batch.step_tokens,
            step_samples=batch.step_samples,
            per_token=self._per_token,
        )
        return _Columns(lengths, starts, sample_T, mask, old, advantage, weight_T)

    def _micro_batches(self, batch: TrainBatch, columns: _Columns) -> Iterator[list[int]]:
        """Samples in runs of one prompt, packed up to the token budget; samples that add nothing are left out."""
        live_S = torch.zeros(len(columns.lengths_S))
        signal = columns.mask_T * columns.advantage_T.abs() if self._skip else columns.mask_T
        live_S.index_add_(0, columns.sample_T, signal)
        packed: list[int] = []
        tokens = 0
        for prompt, samples in _by_prompt(batch):
            alive = [sample for sample in samples if live_S[sample] > 0]
            size = len(batch.prompts_P[prompt]) + sum(batch.response_lengths_S[sample] for sample in alive)
            if alive and packed and tokens + size > self._max_tokens:
                yield packed
                packed, tokens = [], 0
            if alive:
                packed += alive
                tokens += size
        if packed:
            yield packed

    def _backward(
        self, batch: TrainBatch, columns: _Columns, samples: Sequence[int], sums: defaultdict[str, float]
    ) -> None:
        spans = [range(columns.starts_S[sample], columns.starts_S[sample + 1]) for sample in samples]
        tokens = torch.cat([torch.arange(span.start, span.stop) for span in spans])
        groups = _group_tokens(batch, columns, samples)
        forward = self._model.log_probs(groups, temperature=self._temperature, grad=self._gradient)
        mask = columns.mask_T[tokens]
        output = self._loss(
            LossInput(
                log_probs_T=forward.log_probs_T,
                old_log_probs_T=columns.old_T[tokens],
                advantages_T=columns.advantage_T[tokens],
                loss_mask_T=mask,
                entropy_T=forward.entropy_T,
                sample_index_T=torch.repeat_interleave(columns.lengths_S[list(samples)]),
            )
        )
        loss = (output.loss_T * columns.weight_T[tokens]).sum()
        if not torch.isfinite(loss):
            raise NonFiniteError(f"the loss of a micro-batch of {len(samples)} samples is {loss.item()}")
        loss.backward()  # type: ignore[no-untyped-call]
        sums[TOKENS] += float(mask.sum())
        sums["loss"] += float((output.loss_T.detach() * mask).sum())
        for name, values in output.metrics_T.items():
            sums[name] += float((values.detach() * mask).sum())


def _by_prompt(batch: TrainBatch) -> Iterator[tuple[int, list[int]]]:
    """Runs of neighbouring samples with one prompt."""
    run: list[int] = []
    for sample, prompt in enumerate(batch.prompt_index_S):
        if run and batch.prompt_index_S[run[0]] != prompt:
            yield batch.prompt_index_S[run[0]], run
            run = []
        run.append(sample)
    if run:
        yield batch.prompt_index_S[run[0]], run


def _group_tokens(batch: TrainBatch, columns: _Columns, samples: Sequence[int]) -> list[GroupTokens]:
    responses: dict[int, list[Sequence[int]]] = {}
    for sample in samples:
        span = slice(columns.starts_S[sample], columns.starts_S[sample + 1])
        responses.setdefault(batch.prompt_index_S[sample], []).append(batch.tokens_T[span])
    return [GroupTokens(batch.prompts_P[prompt], tuple(each)) for prompt, each in responses.items()]


def _scores(batch: TrainBatch, columns: _Columns) -> dict[int, float]:
    """Mean absolute advantage over each group's trained tokens."""
    group_T = torch.tensor(batch.group_index_S, dtype=torch.int64)[columns.sample_T]
    size = int(group_T.max()) + 1 if len(group_T) else 0
    total = torch.zeros(size).index_add_(0, group_T, columns.advantage_T.abs() * columns.mask_T)
    count = torch.zeros(size).index_add_(0, group_T, columns.mask_T).clamp_min_(1.0)
    mean = (total / count).tolist()
    return {group: mean[group] for group in sorted(set(batch.group_index_S))}
