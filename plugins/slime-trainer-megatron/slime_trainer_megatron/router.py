"""The router of experts: Megatron's, extended by padding and an engine's routes for each micro-batch.

A layer that is recomputed for the backward pass receives its micro-batch's data, even if later micro-batches ran.

Example:

    for router in routers(policy):
        router.begin(RoutingInput(padding_T, routes=None, part=tokens / tokens_of_step), recomputes=True)
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
class RoutingInput:
    """Data of a micro-batch for a rank's routers; T counts the tokens that the rank routes."""

    padding: torch.Tensor
    """Mask of padding tokens, bool [T]."""
    routes: torch.Tensor | None
    """Recorded experts of the tokens, int64 [T, layers, k], -1 where not recorded; None: the routers choose."""
    part: float
    """Tokens of the micro-batch divided by tokens of the whole step; 0 without training."""


class StepRouter(TopKRouter):  # type: ignore[misc]
    """Chooses experts; its auxiliary loss is a mean over a step's tokens, independent of micro-batches."""

    def __init__(self, *given: object, **options: object) -> None:
        """Build Megatron's router; call `begin` before a forward pass."""
        super().__init__(*given, **options)
        self.router_replay = _Replay()
        self._balance_loss = 0.0
        self._next: RoutingInput | None = None
        self._current: RoutingInput | None = None
        self._to_recompute: list[RoutingInput] = []

    def begin(self, routing: RoutingInput, *, recomputes: bool) -> None:
        """Set the micro-batch of the next forward pass; `recomputes`: its backward pass may recompute it."""
        self._next, self._recomputes = routing, recomputes

    def pop_balance_loss(self) -> float:
        """This rank's part of the auxiliary loss since the last call, before its coefficient."""
        loss, self._balance_loss = self._balance_loss, 0.0
        return loss

    def forward(self, hidden: torch.Tensor, padding_mask: object = None) -> Chosen:
        """Weights [T, experts], and the routing map, bool [T, experts]."""
        is_recomputed = torch.is_grad_enabled() and bool(self._to_recompute)
        self._current = self._to_recompute.pop(0) if is_recomputed else self._next
        assert self._current is not None, "`begin` was called"
        if self._recomputes and not torch.is_grad_enabled():
            self._to_recompute.append(self._current)
        routes = self._current.routes
        if routes is None or self.layer_number > routes.shape[1]:  # engines record no multi-token-prediction layer
            self.router_replay.routes = None
        else:
            self.router_replay.routes = routes[:, self.layer_number - 1]
        return cast(Chosen, super().forward(hidden, self._current.padding))

    def _apply_expert_bias(self, *given: object, **options: object) -> None:
        """Do nothing: the experts' bias stays as loaded, so its token counts are not needed."""

    def attach_and_log_load_balancing_loss(
        self,
        activation: torch.Tensor,
        aux_loss_coeff: float,
        aux_loss: torch.Tensor,
        *rest: object,
        **options: object,
    ) -> torch.Tensor:
        """Attach the auxiliary loss of a micro-batch, weighted by its part of the step; ranks attach parts of it."""
        assert self._current is not None
        if not self._current.part:
            return activation
        self._balance_loss += float(aux_loss.detach()) / aux_loss_coeff * self._current.part
        return cast(torch.Tensor, MoEAuxLossAutoScaler.apply(activation, aux_loss * self._current.part))


class _Replay:
    """Replaces Megatron's router replay, which chooses the experts."""

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
