"""Train data: what a rank trains a rollout on, its columns in a safetensors file, as `save_debug_train_data` asks for.

`{step}/{name}` is a field of `TrainBatch` or `Share`: tokens, masks, rewards, advantages, the log-probs of every model
that was asked. `{step}/prompts` are the distinct prompts one after another, `{step}/prompt_lengths_P` their lengths.

Example:

    path = save_train_data("dump/{rollout_id}-{rank}.safetensors", shares, rank=0)
    safetensors.torch.load_file(path)["0/advantages_T"]
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path

import torch

from slime_core.errors import RunFolderError
from slime_train.share import Share

GIVEN_S = ("prompt_index_S", "group_index_S", "rollout_index_S", "response_lengths_S", "rewards_S", "weights_S")


def save_train_data(template: str, shares: Sequence[Share], rank: int) -> Path:
    """Write a rollout's shares, one a step, as they are before its first step; returns where.

    Args:
        template: a path with `{rollout_id}` and `{rank}` in it, both as numbers.
        shares: with their advantages.
        rank: number of the share.

    Raises:
        RunFolderError: it could not be written; a file that was there stays.
    """
    from safetensors.torch import save_file

    rollout_id = shares[0].batch.rollout_id
    path = Path(template.format(rollout_id=rollout_id, rank=rank))
    columns = {name: value.contiguous().cpu() for share in shares for name, value in _columns(share)}
    beside = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(columns, beside, {"rollout_id": str(rollout_id), "rank": str(rank), "steps": str(len(shares))})
        beside.replace(path)
    except OSError as error:
        raise RunFolderError(f"cannot write save_debug_train_data {path}: {error}") from error
    return path


def _columns(share: Share) -> Iterator[tuple[str, torch.Tensor]]:
    batch, step = share.batch, share.batch.step
    prompts = [token for prompt in batch.prompts_P for token in prompt]
    yield f"{step}/prompts", torch.tensor(prompts, dtype=torch.int64)
    yield f"{step}/prompt_lengths_P", torch.tensor([len(prompt) for prompt in batch.prompts_P], dtype=torch.int64)
    yield f"{step}/tokens_T", torch.tensor(batch.tokens_T, dtype=torch.int64)
    for name in GIVEN_S:
        values = getattr(batch, name)
        yield f"{step}/{name}", torch.tensor(values, dtype=torch.int64 if values.typecode in "iq" else torch.float32)
    for field in fields(share):
        value = getattr(share, field.name)
        if isinstance(value, torch.Tensor) and field.name.endswith("_T") and field.name != "sample_T":
            yield f"{step}/{field.name}", value
    for kind in ("columns_S", "columns_T"):
        for name, value in getattr(share, kind).items():
            yield f"{step}/{kind}/{name}", value
