"""Passes: runs micro-batches of a share through Megatron's schedule; a callback receives results on the last stage.

Log-probs are summed over the context-parallel ranks, so that the callback sees whole samples. Each of these ranks then
computes the same loss, and its backward pass covers only its own tokens.

Example:

    passes = Passes(policy, policy, model, head, max_tokens=16384)
    found_T = passes.log_probs(share, share.mask_T)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
import torch.distributed as dist
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel.mappings import reduce_from_tensor_model_parallel_region
from torch.utils.checkpoint import checkpoint

from slime_core.errors import ContractError
from slime_core.roles import SampleField
from slime_train import Share
from slime_trainer_megatron.collectives import max_over_ranks, sum_over_ranks
from slime_trainer_megatron.compat import suppress_warnings
from slime_trainer_megatron.families import Model
from slime_trainer_megatron.model import Policy
from slime_trainer_megatron.packing import Pack, micro_batches, pack_samples, rank_token_indices

PADDING_LOGIT = -1e30
"""Logit of padding ids: its exponential is 0, and so is the exponential times the logit."""


@dataclass(frozen=True, slots=True)
class Head:
    """How logits become log-probs."""

    vocab: int
    """Vocabulary size; further rows of a rank are padding."""
    temperature: float
    """Divisor of the logits."""
    chunk: int
    """Rows at a time."""


def token_log_probs(
    hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, head: Head
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs of labels, and the entropies of their distributions in nats, both [M] fp32 with the gradient.

    Args:
        hidden: [M, width], the same on all tensor-parallel ranks.
        weight: this rank's rows of the output layer.
        labels: int64 [M].
        head: vocabulary size, temperature and chunk size.
    """
    found = []
    for rows, wanted in zip(torch.split(hidden, head.chunk), torch.split(labels, head.chunk), strict=True):
        if torch.is_grad_enabled():
            found.append(checkpoint(_log_probs_of_rows, rows, weight, wanted, head, use_reentrant=False))
        else:
            found.append(_log_probs_of_rows(rows, weight, wanted, head))
    log_probs, entropies = zip(*found, strict=True)
    return torch.cat(log_probs), torch.cat(entropies)


def _log_probs_of_rows(
    hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, head: Head
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = F.linear(hidden, weight).float() / head.temperature
    first = parallel_state.get_tensor_model_parallel_rank() * len(weight)
    if (own := head.vocab - first) < len(weight):
        padding = torch.arange(len(weight), device=logits.device) >= own
        logits = logits.masked_fill(padding, PADDING_LOGIT)
    top = logits.detach().amax(-1)
    dist.all_reduce(top, op=dist.ReduceOp.MAX, group=parallel_state.get_tensor_model_parallel_group())
    logits = logits - top[:, None]
    powers = logits.exp()
    total = reduce_from_tensor_model_parallel_region(powers.sum(-1))
    at = labels - first
    here = (at >= 0) & (at < len(weight))
    picked = torch.where(here, logits.gather(-1, at.clamp(0, len(weight) - 1)[:, None])[:, 0], 0.0)
    weighed = reduce_from_tensor_model_parallel_region((powers * logits).sum(-1))
    log_total = total.log()
    return reduce_from_tensor_model_parallel_region(picked) - log_total, log_total - weighed / total


TokenOutputs = tuple[torch.Tensor, torch.Tensor]
"""Concatenated log-probs and entropies of the response tokens of some samples."""
LossCallback = Callable[[Sequence[int], TokenOutputs], torch.Tensor]
"""Callback that computes a loss from them."""


class Passes:
    """Forward passes, and optionally backward passes, of one model."""

    def __init__(
        self,
        trained: DistributedDataParallel | Policy,
        policy: Policy,
        model: Model,
        head: Head,
        max_tokens: int,
        *,
        replays: bool = False,
    ) -> None:
        """Store the parts.

        Args:
            trained: the wrapper that sums gradients, or the policy itself without training.
            policy: this rank's part of a model.
            model: the whole model.
            head: how logits become log-probs.
            max_tokens: maximum tokens of a micro-batch on a rank; a single sample may have more.
            replays: whether tokens are routed to the experts that the engine chose.
        """
        self._trained, self._policy, self._model, self._head = trained, policy, model, head
        self._replays = replays
        self._mtp_sum = 0.0
        self._context = (
            parallel_state.get_context_parallel_rank(),
            parallel_state.get_context_parallel_world_size(),
        )
        self._budget = max_tokens * self._context[1]
        config = policy.config
        self._multiple = config.tensor_model_parallel_size if config.sequence_parallel else 1

    def run(self, share: Share, signal_T: torch.Tensor, use: LossCallback, *, trains: bool) -> None:
        """Run the samples with a signal through `use`. If no sample has one, runs one padding micro-batch."""
        packed: list[list[int]] = list(micro_batches(share, signal_T, self._budget)) or [[]]
        if self._model.experts:
            # Experts are distributed over the ranks of all shares, so all must run the same number of micro-batches.
            packed += [[]] * (max_over_ranks(len(packed), parallel_state.get_data_parallel_group()) - len(packed))
        packs = [(samples, self.pack(share, samples)) for samples in packed]
        tokens = torch.tensor(sum(pack.texts for _, pack in packs))
        if self._model.experts and trains:
            tokens = sum_over_ranks(tokens, parallel_state.get_data_parallel_group())

        def forward(given: Iterator[tuple[list[int], Pack]], model: object) -> tuple[torch.Tensor, object]:
            samples, pack = next(given)
            self._policy.begin(pack, pack.texts / max(1, int(tokens)), trains=trains)
            hidden = self._policy.run_pack(pack)
            mtp_hidden = self._policy.mtp_hidden

            def loss_of(hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, float]]:
                # Unused weights get a gradient of zero, since other ranks would hang without one.
                nothing = hidden.sum() * 0.0 + self._policy.zero_for_unused()
                loss = use(samples, self._outputs(hidden, pack)) if samples else nothing
                if mtp_hidden:
                    loss = loss + self._mtp_loss(mtp_hidden, pack, share.batch.step_tokens)
                return loss + nothing, torch.tensor(0, dtype=torch.int), {}

            return hidden, loss_of

        with suppress_warnings(), torch.set_grad_enabled(trains):
            get_forward_backward_func()(
                forward_step_func=forward,
                data_iterator=iter(packs),
                model=[self._trained],
                num_microbatches=len(packed),
                seq_length=self._budget,
                micro_batch_size=1,
                forward_only=not trains,
            )
        self._policy.mtp_hidden = ()

    def log_probs(self, share: Share, signal_T: torch.Tensor) -> torch.Tensor:
        """Log-probs [T] of the samples with a signal, on all stages; 0 elsewhere."""
        found_T = torch.zeros_like(share.mask_T)

        def use(samples: Sequence[int], found: TokenOutputs) -> torch.Tensor:
            found_T[share.tokens_of(samples)] = found[0]
            return found[0].sum()

        self.run(share, signal_T, use, trains=False)
        group = parallel_state.get_pipeline_model_parallel_group()
        if dist.get_world_size(group) > 1:
            dist.broadcast(found_T, src=parallel_state.get_pipeline_model_parallel_last_rank(), group=group)
        return found_T

    def pack(self, share: Share, samples: Sequence[int]) -> Pack:
        pack = pack_samples(share, samples, self._context, self._multiple, self._model.further)
        if not self._replays:
            return pack
        mine = rank_token_indices(pack.ends, self._context[1], self._context[0])
        return replace(pack, routes=routes_of(share, samples, pack.ends, mine, self._model))

    def pop_mtp_loss(self) -> float:
        """This rank's part of the multi-token-prediction loss since the last call."""
        loss, self._mtp_sum = self._mtp_sum, 0.0
        return loss

    def _mtp_loss(self, mtp_hidden: Sequence[torch.Tensor], pack: Pack, step_tokens: int) -> torch.Tensor:
        weight, head = self._policy.output_weight().detach(), replace(self._head, temperature=1.0)
        total = torch.zeros(())
        for hidden, wanted in zip(mtp_hidden, pack.mtp_targets, strict=True):
            # All tensor-parallel ranks must join this gather, even if this context rank has no tokens to predict.
            rows = self._policy.rows(hidden, wanted.rows)
            if len(wanted.rows):
                total = total - token_log_probs(rows, weight, wanted.labels, head)[0].sum()
        mean = total / (len(mtp_hidden) * max(1, step_tokens))
        self._mtp_sum += float(mean.detach())
        factor: float = self._policy.config.mtp_loss_scaling_factor
        return mean * factor

    def _outputs(self, hidden: torch.Tensor, pack: Pack) -> TokenOutputs:
        """Log-probs and entropies [R] of all response tokens of a pack."""
        if len(pack.rows):
            rows = self._policy.rows(hidden, pack.rows)
            log_probs, entropy = self._read(rows, pack.labels)
        else:
            log_probs = entropy = torch.zeros(0)
        if self._context[1] == 1:
            return log_probs, entropy
        mine = torch.zeros(2, pack.responses).index_copy(1, pack.wanted, torch.stack([log_probs, entropy]))
        whole: torch.Tensor = _SumOverContext.apply(mine)  # type: ignore[no-untyped-call]
        return whole[0], whole[1]

    def _read(self, rows: torch.Tensor, labels: torch.Tensor) -> TokenOutputs:
        return token_log_probs(rows, self._policy.output_weight(), labels, self._head)


class _SumOverContext(torch.autograd.Function):
    """Sum over ranks that then compute the same loss: each input's gradient equals the sum's gradient."""

    @staticmethod
    def forward(ctx: object, values: torch.Tensor) -> torch.Tensor:
        total = values.clone()
        dist.all_reduce(total, group=parallel_state.get_context_parallel_group())
        return total

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def routes_of(
    share: Share, samples: Sequence[int], ends: torch.Tensor, mine: torch.Tensor, model: Model
) -> torch.Tensor:
    """Experts of a rank's tokens, int64 [T, layers, k]; -1 for padding and for samples without routes.

    Args:
        share: of the step.
        samples: indices of the pack's samples.
        ends: where its texts end; 0 first.
        mine: which of their tokens the rank has.
        model: the trained model.

    Raises:
        ContractError: a sample has too many or too few experts, or ids that the model lacks.
    """
    assert model.experts is not None
    layers, chosen = model.layers, model.experts.chosen
    whole = torch.full((int(ends[-1]), layers, chosen), -1, dtype=torch.int64)
    given = share.batch.fields_S.get(SampleField.ROLLOUT_ROUTED_EXPERTS, ())
    edges = [*pairwise(ends.tolist())]
    for sample, (start, end) in zip(samples, edges, strict=False):
        if not given or (experts := given[sample]) is None:
            continue
        assert isinstance(experts, Sequence)
        prompt = share.batch.prompts_P[share.batch.prompt_index_S[sample]]
        # The last token is never an input.
        inputs = len(prompt) + share.batch.response_lengths_S[sample] - 1
        routes = torch.tensor(experts, dtype=torch.int64)
        if len(routes) != inputs * layers * chosen or (
            len(routes) and not 0 <= int(routes.min()) <= int(routes.max()) < model.experts.count
        ):
            raise ContractError(
                f"use_rollout_routing_replay: a sample's rollout_routed_experts has {len(routes)} numbers; expected "
                f"{inputs} tokens (all but the last) x {layers} layers x {chosen} experts = "
                f"{inputs * layers * chosen}, each from 0 to {model.experts.count - 1}. The engine serves another "
                "model, or uses another format; leave use_rollout_routing_replay out"
            )
        whole[start : min(end, start + inputs)] = routes.view(inputs, layers, chosen)
    return whole[mine]
