"""Algorithm: the model-independent half of a training step: a run's advantage, loss, correction and KL terms, given
log-probs.

Example:

    algorithm = Algorithm.in_rank(catalog, setup, sum_over_shares)
    (share,) = algorithm.estimate([algorithm.share(batch)])
    for samples in packed(share.samples_with(algorithm.signal(share))):
        part = algorithm.micro_batch(share, samples, *model(samples))       # their log-probs and entropies
        part.loss.backward()
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar, assert_never, cast

import torch

from slime_core.catalog import Catalog
from slime_core.catalog.catalog import BuiltChoice
from slime_core.catalog.checks import plugin_errors
from slime_core.config import TEACHER_COLUMN
from slime_core.errors import ContractError, NonFiniteError
from slime_core.roles import (
    Advantage,
    AdvantageSpec,
    Choice,
    Correction,
    CorrectionInput,
    CorrectionOutput,
    CorrectionSpec,
    KlType,
    Loss,
    LossInput,
    LossOutput,
    LossSpec,
    RankSetup,
    Reference,
    Setup,
    Spec,
    TrainBatch,
    ValueAdvantage,
)
from slime_train.checks import check_advantages, check_correction, check_loss
from slime_train.share import MicroBatch, Share, advantage_input


class Algorithm:
    """The advantage estimator, loss and correction of a run, built on one rank."""

    def __init__(
        self,
        setup: RankSetup,
        advantage: BuiltChoice[Advantage],
        loss: BuiltChoice[Loss],
        correction: BuiltChoice[Correction] | None,
        *,
        zero_without_advantage: bool,
        sum_over_shares: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        """Combine the parts that `in_rank` built.

        Args:
            setup: what the rank is built from.
            advantage: the estimator.
            loss: the loss.
            correction: the off-policy correction, if any.
            zero_without_advantage: from the loss's spec for its settings.
            sum_over_shares: sums a tensor over one rank of each share; the result is bitwise equal on all ranks.
        """
        self._setup, self._advantage, self._loss, self._correction = setup, advantage, loss, correction
        self._sum_over_shares = sum_over_shares
        reference = setup.reference
        self.skips = zero_without_advantage and not (reference and reference.kl_loss_coef)
        """Whether samples of zero advantage have no gradient, so that they can be skipped."""

    @classmethod
    def in_rank(
        cls, catalog: Catalog, setup: RankSetup, sum_over_shares: Callable[[torch.Tensor], torch.Tensor]
    ) -> "Algorithm":
        """Build what the setup names; see `build_in_rank`."""
        loss, seed = catalog.find(LossSpec, setup.loss.name).spec, setup.seed
        correction = build_in_rank(catalog, CorrectionSpec, setup.correction, seed) if setup.correction else None
        return cls(
            setup,
            build_in_rank(catalog, AdvantageSpec, setup.advantage, seed),
            build_in_rank(catalog, LossSpec, setup.loss, seed),
            correction,
            zero_without_advantage=loss.zero_without_advantage(setup.loss.settings),
            sum_over_shares=sum_over_shares,
        )

    def share(self, batch: TrainBatch) -> Share:
        """A rank's batch as tensors."""
        return Share.of(batch, self._setup)

    def wants_old_log_probs(self, share: Share) -> bool:
        """Whether the step on a share needs `Share.old_log_probs_T`.

        With a correction, which accounts for the sampler, the loss's ratio is against the policy before the rollout, or
        against a held older one. At step 0 the former is the current policy, which needs no extra forward pass.
        """
        return self._correction is not None and (share.batch.step > 0 or self._setup.old_actor_lag is not None)

    def estimate(self, shares: Sequence[Share]) -> list[Share]:
        """A rollout's shares with their advantages, and the critic's returns where they have values.

        The estimator gets all shares in one call, so that its means and deviations cover the whole rollout.

        Raises:
            ContractError: what the estimator returned breaks its contract.
        """
        shares = [self._with_penalties(share) for share in shares]
        inputs = advantage_input(shares, self._sum_over_shares)
        tokens = [len(share.mask_T) for share in shares]
        plugin = self._advantage.plugin
        advantages_T = check_advantages(self._advantage.part(inputs), plugin=plugin, tokens=sum(tokens))
        returns: Sequence[torch.Tensor | None] = [None] * len(shares)
        if inputs.values_T is not None:
            answer = cast(ValueAdvantage, self._advantage.part).returns(inputs)
            returns = torch.split(check_advantages(answer, plugin=plugin, tokens=sum(tokens)), tokens)
        return [
            replace(share, advantages_T=self._with_distillation(share, advantage_T), returns_T=returns_T)
            for share, advantage_T, returns_T in zip(shares, torch.split(advantages_T, tokens), returns, strict=True)
        ]

    def signal(self, share: Share) -> torch.Tensor:
        """Positive where a token adds to the gradient [T]; samples without such a token can be skipped."""
        assert share.advantages_T is not None
        return share.mask_T * share.advantages_T.abs() if self.skips else share.mask_T

    def micro_batch(
        self, share: Share, samples: Sequence[int], log_probs_T: torch.Tensor, entropy_T: torch.Tensor
    ) -> MicroBatch:
        """The loss of some samples and what to report of it.

        Args:
            share: the step's, with advantages.
            samples: which of its samples.
            log_probs_T: of their response tokens, one sample after another, with the gradient.
            entropy_T: of the predicting distributions, in nats.

        Raises:
            NonFiniteError: a log-prob or the loss is not finite.
            ContractError: what the loss or the correction returned breaks its contract.
        """
        assert share.advantages_T is not None
        places = share.tokens_of(samples)
        loss_input = LossInput(
            log_probs_T=log_probs_T,
            old_log_probs_T=self._old_log_probs(share, places, log_probs_T.detach()),
            rollout_log_probs_T=share.rollout_log_probs_T[places],
            advantages_T=share.advantages_T[places],
            loss_mask_T=share.mask_T[places],
            entropy_T=entropy_T,
            sample_index_T=torch.repeat_interleave(share.lengths_S[list(samples)]),
            columns_S={name: values[list(samples)] for name, values in share.columns_S.items()},
            columns_T={name: values[places] for name, values in share.columns_T.items()},
        )
        corrected = self._correction_output(loss_input)
        output = check_loss(self._loss.part(loss_input), plugin=self._loss.plugin, tokens=len(places))
        kl_T, metrics = self._kl(share, places, loss_input)
        loss_T = _total_loss(output, corrected, kl_T)
        loss = (loss_T * share.weight_T[places]).sum()
        if not torch.isfinite(loss):
            raise NonFiniteError(f"the loss of a micro-batch of {len(samples)} samples is {loss.item()}")
        metrics = {
            "loss": loss_T,
            **mismatch(loss_input.log_probs_T.detach(), loss_input.rollout_log_probs_T),
            **output.metrics_T,
            **(corrected.metrics_T if corrected else {}),
            **metrics,
        }
        return MicroBatch.of(loss, metrics, output.zero_without_advantage | {"loss"}, loss_input)

    def _with_penalties(self, share: Share) -> Share:
        sampled_T, mask_T, reference, teacher = (
            share.rollout_log_probs_T,
            share.mask_T,
            self._setup.reference,
            self._setup.teacher,
        )
        penalty_T = reverse_T = None
        if reference is not None and reference.kl_coef:
            assert share.ref_log_probs_T is not None
            kl_T = approximate_kl(sampled_T, share.ref_log_probs_T, reference.kl_loss_type)
            penalty_T = torch.where(mask_T > 0, reference.kl_coef * kl_T, 0.0)
        if teacher is not None:
            teacher_T = share.columns_T[TEACHER_COLUMN] if teacher.load is None else share.teacher_log_probs_T
            assert teacher_T is not None
            reverse_T = torch.where(mask_T > 0, sampled_T - teacher_T, 0.0)
        return replace(share, kl_penalty_T=penalty_T, reverse_kl_T=reverse_T)

    def _with_distillation(self, share: Share, advantages_T: torch.Tensor) -> torch.Tensor:
        """Advantages [T] less `opd_kl_coef` times the reverse KL to the teacher (on-policy distillation).

        Per token, as in slime: its policy gradient descends KL(policy || teacher) over the policy's own
        samples (Agarwal et al. 2024, arXiv:2306.13649, reverse KL).
        """
        if self._setup.teacher is None or share.reverse_kl_T is None:
            return advantages_T
        return advantages_T - self._setup.teacher.kl_coef * share.reverse_kl_T

    def _old_log_probs(self, share: Share, places: torch.Tensor, log_probs_T: torch.Tensor) -> torch.Tensor:
        if self._correction is None:
            return share.rollout_log_probs_T[places]
        if not self.wants_old_log_probs(share):
            return log_probs_T
        if share.old_log_probs_T is None:
            raise ContractError(
                f"correction {self._correction.name!r} needs log-probs from rollout start, which the trainer did not "
                f"compute at step {share.batch.step} of rollout {share.batch.rollout_id}: give the trainer a "
                "begin_rollout (slime_core.roles.PreparesRollout) that computes Share.old_log_probs_T, or set "
                "num_steps_per_rollout = 1"
            )
        return share.old_log_probs_T[places]

    def _correction_output(self, loss_input: LossInput) -> CorrectionOutput | None:
        if self._correction is None:
            return None
        if not torch.isfinite(loss_input.old_log_probs_T).all():
            raise NonFiniteError("a log-prob under the trained weights is not finite")
        inputs = CorrectionInput(
            loss_input.old_log_probs_T,
            loss_input.rollout_log_probs_T,
            loss_input.loss_mask_T,
            loss_input.sample_index_T,
        )
        with torch.no_grad():
            answer = self._correction.part(inputs)
        return check_correction(answer, plugin=self._correction.plugin, loss_mask_T=loss_input.loss_mask_T)

    def _kl(
        self, share: Share, places: torch.Tensor, loss_input: LossInput
    ) -> tuple[torch.Tensor | None, dict[str, torch.Tensor]]:
        """The reference KL's addition to the losses [T], or None, and metrics of other models [T]."""
        found = (
            ("kl_penalty", share.kl_penalty_T),
            ("opd_reverse_kl", share.reverse_kl_T),
            ("ref_log_probs", share.ref_log_probs_T),
        )
        metrics = {name: values_T[places] for name, values_T in found if values_T is not None}
        reference, mask_T = self._setup.reference, loss_input.loss_mask_T
        if reference is None or not reference.use_kl_loss:
            return None, metrics
        # On untrained tokens the exponential of the difference may overflow, and infinity times 0 is NaN.
        near_T = torch.where(mask_T > 0, metrics["ref_log_probs"], loss_input.log_probs_T.detach())
        kl_T = kl_loss(loss_input.log_probs_T, near_T, loss_input.rollout_log_probs_T, reference)
        added_T = reference.kl_loss_coef * kl_T if reference.kl_loss_coef else None
        return added_T, {**metrics, "kl_loss": kl_T}


def _total_loss(output: LossOutput, corrected: CorrectionOutput | None, kl_T: torch.Tensor | None) -> torch.Tensor:
    """The loss of each token [T]: the correction weights and masks the loss, but not regularizer or KL."""
    loss_T = output.loss_T
    if corrected is not None:
        loss_T = loss_T * corrected.weights_T.detach() * corrected.loss_mask_T.detach()
    if output.regularizer_T is not None:
        loss_T = loss_T + output.regularizer_T
    return loss_T if kl_T is None else loss_T + kl_T


PartT = TypeVar("PartT")


def build_in_rank(catalog: Catalog, of: type[Spec[PartT]], choice: Choice, seed: int) -> BuiltChoice[PartT]:
    """The object that a chosen tensor role's factory builds, and its plugin.

    Raises:
        PluginError: the choice is not there, or its factory raised.
    """
    spec = catalog.find(of, choice.name).spec

    def make(role: str, name: str, **settings: object) -> object:
        other = catalog.find(role, name).spec
        return other.factory(other.model.model_validate(settings), setup)

    setup = Setup(make, seed)
    with plugin_errors(f"the factory of {choice.role} {choice.name!r}", choice.plugin):
        return BuiltChoice(choice.name, choice.plugin, spec.factory(choice.settings, setup))


QUANTILES = {"min": 0.0, "p01": 0.01, "p50": 0.5, "p99": 0.99, "max": 1.0}
"""Reported quantiles of the ratio, by metric suffix."""


def mismatch(log_probs_T: torch.Tensor, rollout_log_probs_T: torch.Tensor) -> dict[str, torch.Tensor]:
    """What to average over trained tokens, [T] each, in nats.

    With d = logp - rollout_logp, of tokens that the sampler drew:

    - train_rollout_logprob_abs_diff: |d|;
    - train_rollout_k1: -d, unbiased for KL(sampler || trainer);
    - train_rollout_k3: exp(d) - 1 - d, unbiased as well and never negative.

    Estimators k1 and k3 of Schulman 2020, "Approximating KL Divergence", joschu.net/blog/kl-approx.html.
    """
    difference_T = log_probs_T - rollout_log_probs_T
    return {
        "train_rollout_logprob_abs_diff": difference_T.abs(),
        "train_rollout_k1": -difference_T,
        "train_rollout_k3": difference_T.expm1() - difference_T,
    }


def mismatch_extremes(difference_T: torch.Tensor) -> dict[str, float]:
    """Extremes of d over the trained tokens [T] of all ranks together; empty where there are no tokens.

    train_rollout_logprob_abs_diff_max is the largest |d| in nats; train_rollout_ratio_min, _p01, _p50, _p99 and _max
    are quantiles of exp(d), by nearest rank. Where sampler and trainer agree, it is 0 and they are 1.
    """
    if not len(difference_T):
        return {}
    sorted_T = difference_T.double().sort().values
    ratio_T, last = sorted_T.exp(), len(sorted_T) - 1
    quantiles = {
        f"train_rollout_ratio_{name}": float(ratio_T[round(share * last)]) for name, share in QUANTILES.items()
    }
    return {"train_rollout_logprob_abs_diff_max": float(sorted_T[[0, -1]].abs().max()), **quantiles}


LOW_VAR_LIMIT = 10.0
"""Bound of `low_var_kl` in nats, as in slime."""


_PLAIN: dict[KlType, KlType] = {"k1+": "k1", "k3+": "k3", "low_var_kl+": "low_var_kl"}
"""Estimators with k2's gradient -> the estimator of their value."""


def approximate_kl(log_probs_T: torch.Tensor, other_log_probs_T: torch.Tensor, kind: KlType) -> torch.Tensor:
    """Estimates of KL(policy || other) [T] in nats, of tokens that the policy drew.

    With d = logp - other_logp (Schulman 2020, "Approximating KL Divergence", joschu.net/blog/kl-approx.html):

    - k1: d, unbiased;
    - k2: d^2 / 2, biased, never negative;
    - k3: exp(-d) - 1 + d, unbiased and never negative;
    - low_var_kl: k3 clamped to [-10, 10]; where it is clamped, there is no gradient;
    - k1+, k3+, low_var_kl+: the value of k1, k3, low_var_kl with the gradient of k2, d grad(logp) (verl's
      straight-through estimators); of k1+ and k3+, value and gradient are both unbiased.

    As a loss, k2 has the KL's gradient in expectation. k1's gradient is grad(logp), which is 0 in expectation. k3's
    gradient is the KL's only if weighted by the policy's ratio (`kl_loss`).
    """
    difference_T = log_probs_T - other_log_probs_T
    match kind:
        case "k1":
            return difference_T
        case "k2":
            return difference_T.square() / 2
        case "k3":
            return (-difference_T).expm1() + difference_T
        case "low_var_kl":
            return ((-difference_T).expm1() + difference_T).clamp(-LOW_VAR_LIMIT, LOW_VAR_LIMIT)
        case "k1+" | "k3+" | "low_var_kl+":
            value_T = approximate_kl(log_probs_T.detach(), other_log_probs_T, _PLAIN[kind])
            slope_T = difference_T.square() / 2
            return value_T + (slope_T - slope_T.detach())
        case _:
            assert_never(kind)


def kl_loss(
    log_probs_T: torch.Tensor, ref_log_probs_T: torch.Tensor, rollout_log_probs_T: torch.Tensor, reference: Reference
) -> torch.Tensor:
    """The KL of each token to the reference [T] in nats, to be added to its loss, `kl_loss_coef` times.

    GRPO's term (Shao et al. 2024, arXiv:2402.03300, equation 4) with k3. `use_unbiased_kl` weights it by
    exp(logp - rollout_logp), including the ratio's gradient: value and gradient of k3 are then unbiased for tokens of
    another sampler (DeepSeek-AI 2025, DeepSeek-V3.2, arXiv:2512.02556, section 3.1). k3+ has the correct gradient of
    k2 already, so its ratio is held constant; otherwise the gradient would count twice.

    Args:
        log_probs_T: the policy's, which carry the gradient.
        ref_log_probs_T: the reference's.
        rollout_log_probs_T: the sampler's.
        reference: what kind of estimate.
    """
    kl_T = approximate_kl(log_probs_T, ref_log_probs_T, reference.kl_loss_type)
    if not reference.use_unbiased_kl:
        return kl_T
    moving_T = log_probs_T.detach() if reference.kl_loss_type in _PLAIN else log_probs_T
    return kl_T * (moving_T - rollout_log_probs_T).exp()
