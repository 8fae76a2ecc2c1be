"""The critic of one rank: a model in the policy's layout with a value head, and a separate optimizer.

Its head starts at 0, and so do its values. Each tensor-parallel rank has a part of the head's columns.

Example:

    values_T = critic.values(share)                     # before the rollout's training
    critic.backward(share)                              # then `prepare`, and `step` if all is finite
"""

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel
from megatron.core.tensor_parallel.mappings import reduce_from_tensor_model_parallel_region
from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint

from slime_core.errors import ConfigError, NonFiniteError
from slime_core.roles import RankSetup
from slime_train import Share, value_loss
from slime_trainer_megatron.arguments import check_model, critic_settings
from slime_trainer_megatron.collectives import broadcast_json, sum_over_ranks
from slime_trainer_megatron.config_json import read_directory
from slime_trainer_megatron.model import Policy, build_policy, load_hf
from slime_trainer_megatron.optimizer import RankOptimizer, gradients_of
from slime_trainer_megatron.passes import Head, Passes, TokenOutputs

SUMS = ("tokens", "critic-value_loss", "critic-value_clipfrac", "values", "returns")


class ValueHead(torch.nn.Module):
    """This rank's columns of a linear function of hidden states."""

    def __init__(self, width: int) -> None:
        """Start with zeros."""
        super().__init__()
        ranks = parallel_state.get_tensor_model_parallel_world_size()
        if width % ranks:
            raise ConfigError(
                f"the critic has hidden_size = {width}, which cannot be split over {ranks} tensor-parallel ranks; use "
                "another critic, or another tensor_model_parallel_size"
            )
        self.weight = torch.nn.Parameter(torch.zeros(1, width // ranks))
        self.weight.tensor_model_parallel = True  # type: ignore[attr-defined]  # the norm counts each rank's part

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """[M, width], the same on all tensor-parallel ranks -> values [M]."""
        rank = parallel_state.get_tensor_model_parallel_rank()
        ranks = parallel_state.get_tensor_model_parallel_world_size()
        part = rows.chunk(ranks, -1)[rank].float() @ self.weight[0]
        return cast(torch.Tensor, reduce_from_tensor_model_parallel_region(part))

    def sharded_state_dict(
        self, prefix: str = "", sharded_offsets: tuple[tuple[int, int, int], ...] = (), metadata: object = None
    ) -> Mapping[str, object]:
        """This rank's columns, as checkpoints store them."""
        state: Mapping[str, object] = make_sharded_tensors_for_checkpoint(
            {"weight": self.weight},
            prefix,
            {"weight": 1},
            sharded_offsets,
            tp_group=parallel_state.get_tensor_model_parallel_group(),
            dp_cp_group=parallel_state.get_data_parallel_group(with_context_parallel=True),
        )
        return state


class ValuePolicy(Policy):
    """GPT up to its hidden states, with a head for values on its last stage."""

    def __init__(self, *given: object, **options: object) -> None:
        """Build the GPT, and the head on its last stage."""
        super().__init__(*given, **options)
        self.value_head = ValueHead(self.config.hidden_size) if self.post_process else None

    def zero_for_unused(self) -> torch.Tensor:
        """A zero that also depends on the head, so that the head has a gradient."""
        assert self.value_head is not None
        return super().zero_for_unused() + self.value_head.weight.sum() * 0.0


class ValuePasses(Passes):
    """Passes that return values instead of log-probs."""

    def _read(self, rows: torch.Tensor, labels: torch.Tensor) -> TokenOutputs:
        policy = cast(ValuePolicy, self._policy)
        assert policy.value_head is not None
        values = policy.value_head(rows)
        return values, torch.zeros_like(values)


class MegatronCritic:
    """The critic: computes values and trains on returns."""

    def __init__(self, setup: RankSetup) -> None:
        """Load the model and add the head.

        Raises:
            ConfigError: it does not fit the layout, or its family is not supported.
            ModelError: it cannot be loaded.
        """
        assert setup.critic is not None
        self._critic, settings = setup.critic, critic_settings(setup.settings)
        whole = read_directory(setup.critic.load, bf16=setup.bf16)
        check_model(settings, whole)
        self.policy = build_policy(whole, settings, ValuePolicy)
        """This rank's part."""
        load_hf(self.policy, setup.critic.load, whole)
        self._model: DistributedDataParallel = gradients_of(self.policy, settings)
        self.optimizer = RankOptimizer(self._model, setup.critic.optim, settings)
        """Its optimizer."""
        head = Head(whole.vocab, 1.0, settings.__dict__["log_probs_chunk_size"])
        tokens: int = settings.__dict__["max_tokens_per_gpu"]
        self._passes = ValuePasses(self._model, self.policy, whole, head, tokens)
        self._sums = torch.zeros(len(SUMS), dtype=torch.float64)

    def values(self, share: Share) -> torch.Tensor:
        """Values [T] of the samples with a trained token; 0 for others."""
        return self._passes.log_probs(share, share.mask_T)

    def backward(self, share: Share) -> None:
        """Compute gradient and sums of a share, which has values and returns, for `step`.

        Raises:
            NonFiniteError: the loss is not finite; raised after all micro-batches.
        """
        self._model.zero_grad_buffer()
        self.optimizer.zero_grad()
        self._sums.zero_()
        assert share.values_T is not None
        assert share.returns_T is not None
        old_T, returns_T, errors = share.values_T, share.returns_T, list[NonFiniteError]()

        def use(samples: Sequence[int], found: TokenOutputs) -> torch.Tensor:
            part, values_T = share.tokens_of(samples), found[0]
            loss_T, clipped_T = value_loss(values_T, old_T[part], returns_T[part], self._critic.value_clip)
            loss = (loss_T * share.weight_T[part]).sum()
            if not torch.isfinite(loss):
                # Other stages are waiting for this one's gradient.
                errors.append(NonFiniteError(f"the critic's loss of a micro-batch is {loss.item()}"))
                return values_T.sum() * 0.0
            mask_T = share.mask_T[part]
            columns = (torch.ones_like(mask_T), loss_T.detach(), clipped_T, values_T.detach(), returns_T[part])
            self._sums += (torch.stack(columns) * mask_T).double().sum(1)
            return loss

        self._passes.run(share, share.mask_T, use, trains=True)
        if errors:
            raise errors[0]

    def prepare(self) -> float:
        """The norm of the whole gradient, the same on all ranks."""
        return self.optimizer.prepare()

    def step(self, norm: float) -> Mapping[str, float]:
        """Take an optimizer step; returns metrics, equal on all ranks."""
        lr = self.optimizer.step(norm)
        # Only the last stage has sums.
        sums = sum_over_ranks(self._sums, parallel_state.get_data_parallel_group()).tolist()
        last = parallel_state.get_pipeline_model_parallel_last_rank()
        tokens, *totals = cast(
            list[float], broadcast_json(sums, last, parallel_state.get_pipeline_model_parallel_group())
        )
        means = {name: total / max(1.0, tokens) for name, total in zip(SUMS[1:], totals, strict=True)}
        return {**means, "critic-grad_norm": norm, "critic-lr-pg_0": lr}
