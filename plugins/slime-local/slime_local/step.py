"""One rank's forward and backward of one step: micro-batches, the model, the gradient in one vector."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from slime_core.roles import TrainBatch
from slime_local.critic import Pack
from slime_local.model import GroupTokens, LocalModel
from slime_train import Algorithm, Share, Sums


class LocalStep:
    """Computes log-probs and gradients, independent of other ranks and of the optimizer."""

    def __init__(self, model: LocalModel, algorithm: Algorithm, *, temperature: float, max_tokens: int) -> None:
        self._model, self._algorithm, self._temperature = model, algorithm, temperature
        self._max_tokens = max_tokens
        self._gradient = torch.zeros(model.numel)

    def run(self, share: Share, *, of_policy: bool = True, trains: bool = True) -> tuple[torch.Tensor, Sums]:
        """Gradient [N] and sums of a rank's share, with estimated advantages.

        Without `of_policy` the policy is not computed, and the gradient is 0; without `trains`, only the sums are.

        Raises:
            NonFiniteError: a log-prob or the loss is not finite.
            ContractError: the output of the loss or the correction breaks its contract.
        """
        self._gradient.zero_()
        sums = Sums()
        for samples in self.micro_batches(share, self._algorithm.signal(share)) if of_policy else ():
            groups = group_tokens(share, samples)
            grad = self._gradient if trains else None
            forward = self._model.log_probs(groups, temperature=self._temperature, grad=grad)
            part = self._algorithm.micro_batch(share, samples, forward.log_probs_T, forward.entropy_T)
            if trains:
                part.loss.backward()  # type: ignore[no-untyped-call]  # torch's and transformers' own are untyped
            sums.add(part)
        return self._gradient, sums

    def release(self) -> None:
        """Free the gradient."""
        self._gradient = torch.empty(0)

    def resume(self) -> None:
        """Allocate the gradient again."""
        if not len(self._gradient):
            self._gradient = torch.zeros(self._model.numel)

    def with_old_log_probs(self, share: Share, old: LocalModel | None = None) -> Share:
        """The share with log-probs of the current policy, or of the `old` one, if its step needs them."""
        if not self._algorithm.wants_old_log_probs(share):
            return share
        found_T, model = torch.zeros_like(share.mask_T), old or self._model
        for pack in self.packs(share, self._algorithm.signal(share)):
            found_T[pack.tokens] = model.log_probs(pack.groups, temperature=self._temperature).log_probs_T
        return replace(share, old_log_probs_T=found_T)

    def packs(self, share: Share, signal_T: torch.Tensor) -> list[Pack]:
        """Micro-batches of the samples with a signal, for models that are not trained."""
        return [
            Pack(share.tokens_of(samples), group_tokens(share, samples))
            for samples in self.micro_batches(share, signal_T)
        ]

    def micro_batches(self, share: Share, signal_T: torch.Tensor) -> Iterator[list[int]]:
        """Micro-batches of samples, same prompts together, up to the token budget; skips samples without a signal."""
        live, batch = set(share.samples_with(signal_T)), share.batch
        packed: list[int] = []
        tokens = 0
        for prompt, samples in _by_prompt(batch):
            alive = [sample for sample in samples if sample in live]
            size = len(batch.prompts_P[prompt]) + sum(batch.response_lengths_S[sample] for sample in alive)
            if alive and packed and tokens + size > self._max_tokens:
                yield packed
                packed, tokens = [], 0
            if alive:
                packed += alive
                tokens += size
        if packed:
            yield packed


def group_tokens(share: Share, samples: Sequence[int]) -> list[GroupTokens]:
    """The samples' tokens, grouped by prompt, in order."""
    batch = share.batch
    responses: dict[int, list[Sequence[int]]] = {}
    for sample in samples:
        span = slice(share.starts_S[sample], share.starts_S[sample + 1])
        responses.setdefault(batch.prompt_index_S[sample], []).append(batch.tokens_T[span])
    return [GroupTokens(batch.prompts_P[prompt], tuple(each)) for prompt, each in responses.items()]


def _by_prompt(batch: TrainBatch) -> Iterator[tuple[int, list[int]]]:
    run: list[int] = []
    for sample, prompt in enumerate(batch.prompt_index_S):
        if run and batch.prompt_index_S[run[0]] != prompt:
            yield batch.prompt_index_S[run[0]], run
            run = []
        run.append(sample)
    if run:
        yield batch.prompt_index_S[run[0]], run
