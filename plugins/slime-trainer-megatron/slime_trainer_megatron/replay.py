"""Replay: the experts that an engine's routers chose for a sample's tokens, laid beside the tokens of a pack.

Example:

    routes = routes_of(share, samples, pack.ends, mine_of_whole(pack.ends, ranks, rank), model)
    routes[3, 0]                    # of this rank's fourth token, in the first layer; -1 where it may choose itself
"""

from collections.abc import Sequence
from itertools import pairwise

import torch

from slime_core.errors import ContractError
from slime_core.roles import SampleField
from slime_train import Share
from slime_trainer_megatron.families import Model


def routes_of(
    share: Share, samples: Sequence[int], ends: torch.Tensor, mine: torch.Tensor, model: Model
) -> torch.Tensor:
    """Experts of a rank's tokens, int64 [T, layers, k], -1 for those of samples that bring none, and for padding.

    Args:
        share: the step's.
        samples: those of the pack.
        ends: where its texts end; 0 first.
        mine: which of their tokens the rank has.
        model: what is trained.

    Raises:
        ContractError: a sample has too many or too few of them, or some that are not experts of the model.
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
        # The last token is drawn and never read.
        read = len(prompt) + share.batch.response_lengths_S[sample] - 1
        routes = torch.tensor(experts, dtype=torch.int64)
        if len(routes) != read * layers * chosen or (
            len(routes) and not 0 <= int(routes.min()) <= int(routes.max()) < model.experts.count
        ):
            raise ContractError(
                f"use_rollout_routing_replay: a sample's rollout_routed_experts has {len(routes)} numbers; expected "
                f"{read} tokens (all but the last) x {layers} layers x {chosen} experts = {read * layers * chosen}, "
                f"each from 0 to {model.experts.count - 1}. The engine serves another model, or tells them otherwise; "
                "leave use_rollout_routing_replay out"
            )
        whole[start : min(end, start + read)] = routes.view(read, layers, chosen)
    return whole[mine]
