"""Tokens: a sample's response in pieces, with the known values of each token.

Example:

    tokens_of(sample, tokenizer, trained_values(template, 3, sample))["log_prob"]
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from slime_core.data import token_texts
from slime_core.errors import RunFolderError
from slime_core.roles import Tokenizer
from slime_core.sample import Json, Sample

TRAINED = {"advantages_T": "advantage", "old_log_probs_T": "trainer_log_prob"}
"""Names of training-data columns on the page."""


def tokens_of(sample: Sample, tokenizer: Tokenizer | None, trained: Mapping[str, Sequence[float]]) -> dict[str, Json]:
    """`pieces` of text, each with its number of tokens, and for each token its `id` and every known value.

    `difference` is the trainer's log-prob minus the sampler's. `prompt` is the text of the prompt's tokens.
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


SHOWN = ("advantages_T", "old_log_probs_T")
"""Per-token columns to show, if the file has them."""


def trained_values(template: str, rollout_id: int, sample: Sample) -> Mapping[str, Sequence[float]]:
    """Training columns of a sample's response tokens in a rollout; none if the rollout did not train on it.

    The trainer's log-probs are left out if the run computed none: they are zeros for samples without an advantage.

    Raises:
        RunFolderError: a file cannot be read.
    """
    for path in _files(template, rollout_id):
        try:
            with safe_open(path, "numpy") as file:
                for step in sorted({name.partition("/")[0] for name in file.keys()}):  # noqa: SIM118  # not a dict
                    if (place := _place(file, step, sample)) is not None:
                        names = [name for name in SHOWN if f"{step}/{name}" in file.keys()]  # noqa: SIM118
                        found = {name: file.get_tensor(f"{step}/{name}")[place].tolist() for name in names}
                        return {name: values for name, values in found.items() if name == SHOWN[0] or any(values)}
        except (SafetensorError, OSError) as error:
            raise RunFolderError(f"{path} is not a file of training data: {error}") from None
    return {}


def _files(template: str, rollout_id: int) -> Iterator[Path]:
    parts = re.split(r"\{rank\}", template.replace("{rollout_id}", str(rollout_id)))
    if len(parts) == 1:
        yield from (path for path in [Path(parts[0])] if path.is_file())
        return
    rank = 0
    while (path := Path(str(rank).join(parts))).is_file():
        yield path
        rank += 1


def _place(file: "safe_open", step: str, sample: Sample) -> slice | None:
    def column(name: str) -> NDArray[np.int64]:
        found: NDArray[np.int64] = file.get_tensor(f"{step}/{name}")  # type: ignore[no-untyped-call]  # safetensors has no types
        return found

    begin = len(sample.tokens) - sample.response_length
    prompt, response = np.array(sample.tokens[:begin]), np.array(sample.tokens[begin:])
    lengths, prompts, tokens = column("response_lengths_S"), column("prompts"), column("tokens_T")
    ends, prompt_ends = np.cumsum(lengths), np.cumsum(column("prompt_lengths_P"))
    which = column("prompt_index_S")
    for number in np.flatnonzero(lengths == len(response)):
        last = prompt_ends[which[number]]
        own = prompts[last - column("prompt_lengths_P")[which[number]] : last]
        here = slice(int(ends[number] - lengths[number]), int(ends[number]))
        if np.array_equal(tokens[here], response) and np.array_equal(own, prompt):
            return here
    return None
