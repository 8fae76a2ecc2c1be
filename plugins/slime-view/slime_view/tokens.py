"""Tokens: a sample's response piece by piece, with what is known of each token.

Example:

    tokens_of(sample, tokenizer, trained_values(template, 3, sample))["log_prob"]
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from slime_core.data import token_texts
from slime_core.roles import Tokenizer
from slime_core.sample import Json, Sample

TRAINED = {"advantages_T": "advantage", "old_log_probs_T": "trainer_log_prob"}
"""Names of the columns of train data here."""


def tokens_of(sample: Sample, tokenizer: Tokenizer | None, trained: Mapping[str, Sequence[float]]) -> dict[str, Json]:
    """`pieces` of text, each with its number of tokens, and by token `id` and every value that is known.

    `difference` is the trainer's log-prob less the sampler's. `prompt` is the text that the tokens of the prompt have.
    Without a tokenizer the pieces are ids.
    """
    begin = len(sample.tokens) - sample.response_length
    prompt, ids = list(sample.tokens[:begin]), list(sample.tokens[begin:])
    found: dict[str, Json] = {
        "prompt": _text(prompt, tokenizer),
        "pieces": [[text, count] for text, count in _pieces(ids, tokenizer)],
        "id": list[Json](ids),
    }
    columns: dict[str, Sequence[float] | Sequence[str] | None] = {
        "log_prob": sample.rollout_log_probs,
        "teacher_log_prob": sample.teacher_log_probs,
        "mask": sample.loss_mask,
        "version": _versions(sample),
    }
    columns |= {name: trained.get(column) for column, name in TRAINED.items()}
    found |= {name: list[Json](values) for name, values in columns.items() if values is not None}
    if (ours := trained.get("old_log_probs_T")) and sample.rollout_log_probs is not None:
        found["difference"] = [one - other for one, other in zip(ours, sample.rollout_log_probs, strict=True)]
    return found


def _text(ids: Sequence[int], tokenizer: Tokenizer | None) -> str:
    return " ".join(map(str, ids)) if tokenizer is None else tokenizer.decode(ids, skip_special_tokens=False)


def _pieces(ids: Sequence[int], tokenizer: Tokenizer | None) -> list[tuple[str, int]]:
    return [(f"{number} ", 1) for number in ids] if tokenizer is None else list(token_texts(ids, tokenizer))


def _versions(sample: Sample) -> list[str] | None:
    names, ends = sample.weight_versions, sample.weight_version_ends
    if len(names) == 1 and not ends:
        return [names[0]] * sample.response_length
    if len(names) != len(ends) or not names:
        return None
    versions = [
        name for name, (one, other) in zip(names, pairwise([0, *ends]), strict=True) for _ in range(other - one)
    ]
    return versions + [""] * (sample.response_length - len(versions))
