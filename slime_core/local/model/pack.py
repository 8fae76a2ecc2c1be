"""Groups laid out flat for the training forward: every prompt once, then every response without its last token.

    flat:   p0 p0 p0 | p1 p1 | r00 r00 | r01 | r10 r10 ...
The last token of a response is predicted but predicts nothing, so it is no input. In the last layer a prompt is
needed at its end alone: `last_plan` asks only there, and `kept` names the tokens that go on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from slime_core.local.model.attention import AttentionPlan, Segment, plan_attention
from slime_core.local.model.tokens import GroupTokens


@dataclass(frozen=True, slots=True)
class Packed:
    """Index tensors of one training forward over N flat tokens that predicts T tokens."""

    tokens: Tensor
    """[N] ids."""
    positions: Tensor
    """[N] position of each in its text."""
    plan: AttentionPlan
    """Every token asks."""
    last_plan: AttentionPlan
    """The `kept` tokens ask."""
    kept: Tensor
    """[M] flat tokens that predict: ends of prompts, then all response inputs."""
    source: Tensor
    """[T] index into `kept` of the token that predicts each response token."""
    targets: Tensor
    """[T] ids, in the order group, response, token."""


def pack_groups(groups: Sequence[GroupTokens], heads: int, kv_heads: int) -> Packed:
    """Lay the groups out; attention is planned for `heads` query and `kv_heads` key heads."""
    prompt_segments, last_segments, prompts = [], [], []
    end = 0
    for group in groups:
        prompt = range(end, end + len(group.prompt))
        end = prompt.stop
        prompts.append(prompt)
        prompt_segments.append(Segment(range(0), prompt, prompt))
        last_segments.append(Segment(range(0), prompt, range(end - 1, end)))
    total_prompt = end
    segments, source, positions = list[Segment](), list[Tensor](), [torch.arange(len(p)) for p in prompts]
    for index, (group, prompt) in enumerate(zip(groups, prompts, strict=True)):
        for response in group.responses:
            own = range(end, end + len(response) - 1)
            first = len(groups) + own.start - total_prompt
            source.append(torch.cat([torch.tensor([index]), torch.arange(first, first + len(own))]))
            if own:
                segments.append(Segment(prompt, own, own))
                positions.append(torch.arange(len(prompt), len(prompt) + len(own)))
            end = own.stop
    inputs = chain(
        chain.from_iterable(g.prompt for g in groups), chain.from_iterable(r[:-1] for g in groups for r in g.responses)
    )
    ends = torch.tensor([p.stop - 1 for p in prompts])
    return Packed(
        tokens=torch.tensor(list(inputs)),
        positions=torch.cat(positions),
        plan=plan_attention(prompt_segments + segments, heads, kv_heads),
        last_plan=plan_attention(last_segments + segments, heads, kv_heads),
        kept=torch.cat([ends, torch.arange(total_prompt, end)]),
        source=torch.cat(source),
        targets=torch.tensor(list(chain.from_iterable(r for g in groups for r in g.responses))),
    )
