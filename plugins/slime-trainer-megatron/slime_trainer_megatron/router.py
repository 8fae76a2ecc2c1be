"""The router of experts: Megatron's, extended by padding and an engine's routes for each micro-batch.

Layers recomputed for the backward pass get the same data again, although other micro-batches came in between.

Example:

    for router in routers(policy):
        router.begin(Sight(padding_T, routes=None, part=tokens / tokens_of_step), again=True)
    ...                                                                # a forward pass, and its backward pass
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import torch
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler
from megatron.core.transformer.moe.router import TopKRouter

Chosen = tuple[torch.Tensor, torch.Tensor]
"""Scores [T, k] and experts [T, k]."""


@dataclass(frozen=True, slots=True)
class Sight:
    """Data of a micro-batch for a rank's routers; T are the tokens that the rank routes."""

    padding: torch.Tensor
    """Which tokens are padding, bool [T]."""
    routes: torch.Tensor | None
    """Recorded experts of the tokens, int64 [T, layers, k], -1 where not recorded; None: routers choose."""
    part: float
    """Tokens of the micro-batch divided by tokens of the whole step; 0 without training."""


class StepRouter(TopKRouter):  # type: ignore[misc]
    """Chooses experts; its auxiliary loss is a mean over a step's tokens, independent of micro-batches."""

    def __init__(self, *given: object, **options: object) -> None:
        """Build Megatron's router; no micro-batch has begun."""
        super().__init__(*given, **options)
        self.router_replay = _Replay()
        self._balance = 0.0
        self._now: Sight | None = None
        self._used: Sight | None = None
        self._later: list[Sight] = []

    def begin(self, sight: Sight, *, again: bool) -> None:
        """Set the micro-batch of the next forward pass; `again`: its backward pass may recompute it."""
        self._now, self._again = sight, again

    def told(self) -> float:
        """This rank's part of the auxiliary loss since the last call, before its coefficient."""
        told, self._balance = self._balance, 0.0
        return told

    def forward(self, hidden: torch.Tensor, padding_mask: object = None) -> Chosen:
        """Weights [T, experts], and the routing map, bool [T, experts]."""
        computed_again = torch.is_grad_enabled() and bool(self._later)
        self._used = self._later.pop(0) if computed_again else self._now
        assert self._used is not None, "a micro-batch has begun"
        if self._again and not torch.is_grad_enabled():
            self._later.append(self._used)
        routes = self._used.routes
        if routes is None or self.layer_number > routes.shape[1]:  # engines tell of no layer beyond the last
            self.router_replay.routes = None
        else:
            self.router_replay.routes = routes[:, self.layer_number - 1]
        return cast(Chosen, super().forward(hidden, self._used.padding))

    def _apply_expert_bias(self, *given: object, **options: object) -> None:
        """Do nothing: token counts, which would update the experts' bias, are not collected."""

    def attach_and_log_load_balancing_loss(
        self,
        activation: torch.Tensor,
        aux_loss_coeff: float,
        aux_loss: torch.Tensor,
        *rest: object,
        **options: object,
    ) -> torch.Tensor:
        """Attach the auxiliary loss of a micro-batch, weighted by its part of the step; ranks attach parts of it."""
        assert self._used is not None
        if not self._used.part:
            return activation
        self._balance += float(aux_loss.detach()) / aux_loss_coeff * self._used.part
        return cast(torch.Tensor, MoEAuxLossAutoScaler.apply(activation, aux_loss * self._used.part))


class _Replay:
    """Replaces Megatron's router replay, which Megatron calls for the best experts."""

    routes: torch.Tensor | None = None

    def get_replay_topk(
        self,
        scores: torch.Tensor,
        topk: int,
        num_groups: int | None,
        group_topk: int | None,
        usual: Callable[..., Chosen],
    ) -> Chosen:
        best, experts = usual(scores, topk, num_groups=num_groups, group_topk=group_topk)
        if self.routes is None:
            return best, experts
        experts = torch.where(self.routes[:, :1] >= 0, self.routes, experts)
        return scores.gather(1, experts), experts


def routers(model: torch.nn.Module) -> Iterator[StepRouter]:
    """The routers in a rank's part of a model."""
    return (module for module in model.modules() if isinstance(module, StepRouter))
