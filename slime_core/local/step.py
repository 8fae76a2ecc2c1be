"""One rank's gradient of one step: advantages, micro-batches, forward, loss, correction, backward into one vector."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch

from slime_core.catalog.used import Used
from slime_core.errors import NonFiniteError
from slime_core.local.beside import NOTHING, Beside, Seen
from slime_core.local.critic import Pack, Target
from slime_core.local.model import GroupTokens, LocalModel
from slime_core.roles import (
    Advantage,
    AdvantageInput,
    Correction,
    CorrectionInput,
    CorrectionOutput,
    Loss,
    LossInput,
    TrainBatch,
    ValueAdvantage,
)
from slime_core.train.checks import check_advantages, check_correction, check_loss
from slime_core.train.mismatch import mismatch
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
    log_ratio_T: torch.Tensor
    """Log-probs minus the sampler's, of the trained tokens that were computed [T]."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """A batch as tensors. S samples, T response tokens."""

    lengths_S: torch.Tensor
    starts_S: list[int]
    sample_T: torch.Tensor
    mask_T: torch.Tensor
    old_T: torch.Tensor
    advantage_T: torch.Tensor
    """0 until it is estimated."""
    weight_T: torch.Tensor
    extra_S: Mapping[str, torch.Tensor]
    extra_T: Mapping[str, torch.Tensor]
    seen: Seen = NOTHING


class LocalStep:
    """Computes gradients; knows nothing of other ranks and of the optimizer."""

    def __init__(
        self,
        *,
        model: LocalModel,
        advantage: Used[Advantage],
        loss: Used[Loss],
        correction: Used[Correction] | None,
        skip_zero_advantage: bool,
        temperature: float,
        per_token: bool,
        constant_length: int | None,
        max_tokens: int,
        sum_over_ranks: Callable[[torch.Tensor], torch.Tensor],
        beside: Beside | None = None,
    ) -> None:
        """Take the parts."""
        self._model, self._advantage, self._loss, self._correction = model, advantage, loss, correction
        self._skip, self._temperature = skip_zero_advantage, temperature
        self._per_token, self._constant_length, self._max_tokens = per_token, constant_length, max_tokens
        self._sum_over_ranks = sum_over_ranks
        self._beside = beside
        self._gradient = torch.zeros(model.numel)
        self._grad: torch.Tensor | None = self._gradient

    def run(self, batch: TrainBatch, *, of_policy: bool = True, trains: bool = True) -> tuple[torch.Tensor, StepSums]:
        """Gradient [N] and sums of a rank's share.

        Without `of_policy` the gradient is 0, and the critic's alone is computed; unless it `trains`, the sums alone.

        Raises:
            NonFiniteError: a log-prob or the loss is not finite.
            ContractError: what the estimator, the loss or the correction returned breaks its contract.
        """
        self._gradient.zero_()
        self._grad = self._gradient if trains else None
        sums: defaultdict[str, float] = defaultdict(float)
        columns = self._estimated(batch, self._columns(batch))
        signal_T = columns.mask_T * columns.advantage_T.abs() if self._skip else columns.mask_T
        micro_batches = self._micro_batches(batch, columns, signal_T) if of_policy else iter(())
        ratios = [torch.empty(0), *(self._backward(batch, columns, samples, sums) for samples in micro_batches)]
        tokens = int(sums.pop(TOKENS, 0.0))
        return self._gradient, StepSums(dict(sums), tokens, _scores(batch, columns), torch.cat(ratios))

    def _columns(self, batch: TrainBatch) -> _Columns:
        lengths = torch.tensor(batch.response_lengths_S, dtype=torch.int64)
        sample_T = torch.arange(len(lengths)).repeat_interleave(lengths)
        mask = torch.tensor(batch.loss_mask_T, dtype=torch.float32)
        weights = torch.tensor(batch.weights_S, dtype=torch.float32)
        rollouts = torch.tensor(batch.rollout_index_S, dtype=torch.int64)
        starts = [0, *lengths.cumsum(0).tolist()]
        old = torch.tensor(batch.rollout_log_probs_T, dtype=torch.float32)
        extra_S, extra_T = _tensors(batch.columns_S), _tensors(batch.columns_T)
        weight_T = token_weights(
            mask,
            sample_T,
            weights,
            rollouts,
            step_tokens=batch.step_tokens,
            step_samples=batch.step_samples,
            per_token=self._per_token,
            constant_length=self._constant_length,
        )
        none = torch.zeros_like(mask)
        return _Columns(lengths, starts, sample_T, mask, old, none, weight_T, extra_S, extra_T)

    def _estimated(self, batch: TrainBatch, columns: _Columns) -> _Columns:
        """The columns with their advantages, and what the models beside the policy say; the critic's gradient."""
        seen, packs = NOTHING, list[Pack]()
        if self._beside is not None:
            packs = [
                Pack(_places(columns, samples), _group_tokens(batch, columns, samples))
                for samples in self._micro_batches(batch, columns, columns.mask_T)
            ]
            seen = self._beside.look(packs, columns.old_T, columns.mask_T, columns.extra_T)
        given = AdvantageInput(
            torch.tensor(batch.rewards_S, dtype=torch.float32),
            torch.tensor(batch.group_index_S, dtype=torch.int64),
            torch.tensor(batch.rollout_index_S, dtype=torch.int64),
            columns.sample_T,
            columns.mask_T,
            columns.extra_S,
            columns.extra_T,
            self._sum_over_ranks,
            seen.kl_penalty_T,
            seen.values_T,
        )
        plugin, tokens = self._advantage.plugin, len(columns.mask_T)
        advantage = check_advantages(self._advantage.part(given), plugin=plugin, tokens=tokens)
        if self._beside is not None:
            advantage = self._beside.distilled(advantage, seen)
            if self._beside.critic is not None and seen.values_T is not None:
                answer = cast(ValueAdvantage, self._advantage.part).returns(given)
                returns = check_advantages(answer, plugin=plugin, tokens=tokens)
                target = Target(seen.values_T, returns, columns.mask_T, columns.weight_T)
                self._beside.critic.backward(packs, target)
        return replace(columns, advantage_T=advantage, seen=seen)

    def _micro_batches(self, batch: TrainBatch, columns: _Columns, signal_T: torch.Tensor) -> Iterator[list[int]]:
        """Samples in runs of one prompt, packed up to the token budget; samples without a signal are left out."""
        live_S = torch.zeros(len(columns.lengths_S))
        live_S.index_add_(0, columns.sample_T, signal_T)
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
    ) -> torch.Tensor:
        """Add the gradient and the sums of a micro-batch; returns the log-ratios of its trained tokens."""
        tokens = _places(columns, samples)
        groups = _group_tokens(batch, columns, samples)
        forward = self._model.log_probs(groups, temperature=self._temperature, grad=self._grad)
        mask, rollout = columns.mask_T[tokens], columns.old_T[tokens]
        log_probs = forward.log_probs_T.detach()
        sample_T = torch.repeat_interleave(columns.lengths_S[list(samples)])
        corrected = self._correct(CorrectionInput(log_probs, rollout, mask, sample_T))
        answer = self._loss.part(
            LossInput(
                log_probs_T=forward.log_probs_T,
                old_log_probs_T=rollout if corrected is None else log_probs,
                rollout_log_probs_T=rollout,
                advantages_T=columns.advantage_T[tokens],
                loss_mask_T=mask,
                entropy_T=forward.entropy_T,
                sample_index_T=sample_T,
                columns_S={name: values[list(samples)] for name, values in columns.extra_S.items()},
                columns_T={name: values[tokens] for name, values in columns.extra_T.items()},
            )
        )
        output = check_loss(answer, plugin=self._loss.plugin, tokens=len(tokens))
        loss_T = output.loss_T
        if corrected is not None:
            loss_T = loss_T * corrected.weights_T.detach() * corrected.loss_mask_T.detach()
        if output.regularizer_T is not None:
            loss_T = loss_T + output.regularizer_T
        kl_T, kl_metrics = self._kl_loss(columns.seen, tokens, forward.log_probs_T, rollout, mask)
        if kl_T is not None:
            loss_T = loss_T + kl_T
        loss = (loss_T * columns.weight_T[tokens]).sum()
        if not torch.isfinite(loss):
            raise NonFiniteError(f"the loss of a micro-batch of {len(samples)} samples is {loss.item()}")
        if self._grad is not None:
            loss.backward()  # type: ignore[no-untyped-call]
        sums[TOKENS] += float(mask.sum())
        sums["loss"] += float((loss_T.detach() * mask).sum())
        metrics = {
            **mismatch(log_probs, rollout),
            **output.metrics_T,
            **(corrected.metrics_T if corrected else {}),
            **kl_metrics,
        }
        for name, values in metrics.items():
            sums[name] += float((values.detach() * mask).sum())
        return (log_probs - rollout)[mask > 0]

    def _kl_loss(
        self, seen: Seen, tokens: torch.Tensor, log_probs: torch.Tensor, rollout: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor | None, dict[str, torch.Tensor]]:
        if self._beside is None:
            return None, {}
        metrics = {
            name: values_T[tokens]
            for name, values_T in (("kl_penalty", seen.kl_penalty_T), ("opd_reverse_kl", seen.reverse_kl_T))
            if values_T is not None
        }
        ref_T = None if seen.ref_log_probs_T is None else seen.ref_log_probs_T[tokens]
        added, own = self._beside.kl_loss(ref_T, log_probs, rollout, mask)
        return added, metrics | own

    def _correct(self, given: CorrectionInput) -> CorrectionOutput | None:
        if self._correction is None:
            return None
        if not torch.isfinite(given.log_probs_T).all():
            raise NonFiniteError("a log-prob under the trained weights is not finite")
        with torch.no_grad():
            answer = self._correction.part(given)
        return check_correction(answer, plugin=self._correction.plugin, loss_mask_T=given.loss_mask_T)


def _tensors(columns: Mapping[str, Sequence[float]]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(values, dtype=torch.float32) for name, values in columns.items()}


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


def _places(columns: _Columns, samples: Sequence[int]) -> torch.Tensor:
    """Places of the samples' response tokens in the batch, one sample after another."""
    return torch.cat([torch.arange(columns.starts_S[each], columns.starts_S[each + 1]) for each in samples])


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
