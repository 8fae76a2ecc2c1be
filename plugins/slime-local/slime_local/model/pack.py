"""Groups laid out flat for the training forward: the prefix tree of all their texts.

The last token of a response is predicted but predicts nothing, so it is not an input. In the last layer only nodes that
predict a response token (`kept`) are computed: `last_plan` has queries only for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from slime_local.model.attention import AttentionPlan, Branch, Indices, PrefixTree, plan_attention, prefix_tree
from slime_local.model.tokens import GroupTokens


@dataclass(frozen=True, slots=True)
class Packed:
    """Index tensors of one training forward over N nodes that predicts T tokens."""

    tokens: Tensor
    """[N] ids."""
    positions: Tensor
    """[N] position of each in its texts."""
    plan: AttentionPlan
    """Attention plan with all nodes as queries."""
    last_plan: AttentionPlan
    """Attention plan with the `kept` nodes as queries."""
    kept: Tensor
    """[M] nodes from which response tokens are predicted."""
    source: Tensor
    """[T] index into `kept` of the node that predicts each response token."""
    targets: Tensor
    """[T] ids, in the order group, response, token."""


def pack_groups(groups: Sequence[GroupTokens], heads: int, kv_heads: int) -> Packed:
    """Lay the groups out; attention is planned for `heads` query and `kv_heads` key heads."""
    texts = [(*group.prompt, *response[:-1]) for group in groups for response in group.responses]
    firsts = [len(group.prompt) - 1 for group in groups for _ in group.responses]
    tree = prefix_tree(texts)
    predicting = [path[first:] for path, first in zip(tree.paths, firsts, strict=True)]
    last = _predicting_ends(tree, predicting)
    kept = np.concatenate([branch.path[-branch.new :] for branch in last])
    place = np.zeros(len(tree.tokens), dtype=np.int64)
    place[kept] = np.arange(len(kept))
    return Packed(
        tokens=torch.as_tensor(tree.tokens),
        positions=torch.as_tensor(tree.depths),
        plan=plan_attention(tree.branches, heads, kv_heads),
        last_plan=plan_attention(last, heads, kv_heads),
        kept=torch.as_tensor(kept),
        source=torch.as_tensor(place[np.concatenate(predicting)]),
        targets=torch.tensor([token for group in groups for response in group.responses for token in response]),
    )


def _predicting_ends(tree: PrefixTree, predicting: Sequence[Indices]) -> list[Branch]:
    """The branches with queries from their first predicting node on; every branch ends with one."""
    needed = np.zeros(len(tree.tokens), dtype=np.bool_)
    needed[np.concatenate(predicting)] = True
    ends = []
    for branch in tree.branches:
        own = needed[branch.path[-branch.new :]]
        ends.append(Branch(branch.path, branch.new - int(own.argmax())))
    return ends
