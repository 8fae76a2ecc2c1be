"""Packing: concatenates the samples of a micro-batch and splits their tokens over context-parallel ranks.

A text is padded to a multiple of 2 C and split into 2 C pieces. Rank r of C gets piece r from the start and piece r
from the end, so that all ranks have the same number of attention pairs.

Example:

    pack = pack_samples(share, samples, context=(0, 1), multiple=1)
    hidden = model(pack.tokens[None], ...)                     # [T of this rank]
    hidden[pack.rows], pack.labels, pack.wanted                # rows that predict response tokens, and their indices
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from slime_train import Share


@dataclass(frozen=True, slots=True)
class MtpTargets:
    """Targets of a multi-token-prediction layer: only trained response tokens."""

    rows: torch.Tensor
    """Indices in T of the tokens that predict a target, int64 [M]."""
    labels: torch.Tensor
    """The predicted tokens, int64 [M]."""


@dataclass(frozen=True, slots=True)
class Pack:
    """Shape legend: T tokens of this rank, R response tokens of the samples, M <= R predicted by this rank."""

    tokens: torch.Tensor
    """int64 [T], padding included."""
    positions: torch.Tensor
    """Position of each token in its text, int64 [T]."""
    ends: torch.Tensor
    """Ends of the whole texts, over all ranks, after a first 0; int32."""
    longest: int
    """Tokens of the longest text."""
    rows: torch.Tensor
    """Indices in T of the tokens that predict a response token, int64 [M]."""
    labels: torch.Tensor
    """The predicted tokens, int64 [M]."""
    wanted: torch.Tensor
    """Indices in R of the predicted tokens, int64 [M]."""
    responses: int
    """R."""
    padding: torch.Tensor
    """Mask of padding tokens, bool [T]."""
    texts: int
    """Tokens of the whole texts, over all ranks."""
    mtp_targets: Sequence[MtpTargets] = ()
    """Targets of each multi-token-prediction layer, the nearest first."""
    routes: torch.Tensor | None = None
    """Experts that the engine chose, int64 [T, layers, k], -1 if unknown; None: no routes are replayed."""


def micro_batches(share: Share, signal_T: torch.Tensor, budget: int) -> Iterator[list[int]]:
    """Micro-batches of the samples with a signal: at most `budget` tokens, or one sample."""
    batch, run, size = share.batch, list[int](), 0
    for sample in share.samples_with(signal_T):
        length = len(batch.prompts_P[batch.prompt_index_S[sample]]) + batch.response_lengths_S[sample]
        if run and size + length > budget:
            yield run
            run, size = [], 0
        run.append(sample)
        size += length
    if run:
        yield run


def pack_samples(
    share: Share, samples: Sequence[int], context: tuple[int, int], multiple: int, mtp_layers: int = 0
) -> Pack:
    """Pack samples of a share. Without samples, a pack of padding only, for a rank that must take part.

    Args:
        share: the share of the step.
        samples: indices of the samples.
        context: this rank's index among the context-parallel ranks, and their number.
        multiple: number that must divide the tokens of a rank.
        mtp_layers: number of multi-token-prediction layers.
    """
    batch, (rank, ranks) = share.batch, context
    unit = 2 * ranks if ranks > 1 else 1
    texts, predicting, labels, at = list[list[int]](), [torch.zeros(0, dtype=torch.int64)], list[int](), 0
    lengths, begins = list[int](), list[int]()
    for sample in samples:
        response = list(batch.tokens_T[share.starts_S[sample] : share.starts_S[sample + 1]])
        text = [*batch.prompts_P[batch.prompt_index_S[sample]], *response]
        predicting.append(torch.arange(at + len(text) - len(response), at + len(text)) - 1)
        labels += response
        begins += [at] * len(response)
        lengths.append(len(text))
        texts.append(text + [0] * (-len(text) % unit))
        at += len(texts[-1])
    if missing := -(at // ranks) % multiple or (0 if texts else multiple):
        # All ranks get the same padding, in units that a text must be a multiple of.
        while missing * ranks % unit:
            missing += multiple
        texts.append([0] * (missing * ranks))
        lengths.append(0)
    ends = torch.tensor([0, *(len(text) for text in texts)], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    mine = rank_token_indices(ends, ranks, rank)
    whole = torch.tensor([token for text in texts for token in text])
    position = torch.cat([torch.arange(len(text)) for text in texts])
    where = torch.full((len(whole),), -1).index_copy(0, mine, torch.arange(len(mine)))
    before = torch.cat(predicting)
    rows = where[before]
    wanted = (rows >= 0).nonzero()[:, 0]
    answers = torch.tensor(labels, dtype=torch.int64)
    trained = torch.cat([torch.zeros(0), *(share.mask_T[share.tokens_of([sample])] for sample in samples)]) > 0
    first = torch.tensor(begins, dtype=torch.int64)
    longest = max(map(len, texts))
    real = position < torch.tensor(lengths).repeat_interleave(ends.diff())
    return Pack(
        tokens=whole[mine],
        positions=position[mine],
        ends=ends,
        longest=longest,
        rows=rows[wanted],
        labels=answers[wanted],
        wanted=wanted,
        responses=len(labels),
        padding=~real[mine],
        texts=sum(lengths),
        mtp_targets=[_targets(before - depth, first, answers, trained, where) for depth in range(1, mtp_layers + 1)],
    )


def _targets(
    before: torch.Tensor, first: torch.Tensor, answers: torch.Tensor, trained: torch.Tensor, where: torch.Tensor
) -> MtpTargets:
    """Targets among the response tokens [R] whose predicting token is in their text and on this rank."""
    kept = trained & (before >= first)
    rows = where[before[kept]]
    return MtpTargets(rows[rows >= 0], answers[kept][rows >= 0])


def rank_token_indices(ends: torch.Tensor, ranks: int, rank: int) -> torch.Tensor:
    """Indices of a rank's tokens in the whole texts, in the rank's order, int64."""
    if ranks == 1:
        return torch.arange(int(ends[-1]))
    edges, parts = ends.tolist(), list[torch.Tensor]()
    for start, end in pairwise(edges):
        pieces = torch.arange(start, end).chunk(2 * ranks)
        if end > start:
            parts += [pieces[rank], pieces[2 * ranks - 1 - rank]]
    return torch.cat(parts)
