"""Train data: what a sample's tokens were worth in training, where the run kept what its ranks trained on.

A run keeps it with `save_debug_train_data = "…/{rollout_id}-{rank}.safetensors"`.

Example:

    trained_values("dump/{rollout_id}-{rank}.safetensors", 3, sample)["advantages_T"]
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from slime_core.errors import RunFolderError
from slime_core.sample import Sample

SHOWN = ("advantages_T", "old_log_probs_T")
"""Columns by token that are shown, where the file has them."""


def trained_values(template: str, rollout_id: int, sample: Sample) -> Mapping[str, Sequence[float]]:
    """Columns of a sample's response tokens in the training of a rollout; none where it was not trained on there.

    The trainer's log-probs are left out where the run computed none: of samples without an advantage they are zeros.

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
            raise RunFolderError(f"{path} cannot be read as what ranks trained on: {error}") from None
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
