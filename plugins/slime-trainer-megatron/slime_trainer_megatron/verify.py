"""Verify: what Megatron's model makes of a torch_dist checkpoint, against what transformers makes of a model directory.

Example:

    far = largest_difference(Path("models/mine"), Path("mine_torch_dist/release"))
"""

from functools import partial
from pathlib import Path

import torch

from slime_core.errors import ModelError
from slime_trainer_megatron.collectives import alone
from slime_trainer_megatron.compat import importing, quietly, stand_in_for_cuda

with importing():
    from megatron.core import parallel_state, tensor_parallel

    from slime_trainer_megatron.export import as_stored, whole_piece
    from slime_trainer_megatron.model import build_policy
    from slime_trainer_megatron.torch_dist import Stored

from slime_trainer_megatron.arguments import settings_model
from slime_trainer_megatron.config_json import read_directory
from slime_trainer_megatron.families import Model
from slime_trainer_megatron.model import Policy, own_parameters
from slime_trainer_megatron.packing import Pack

TEXTS, LENGTH = 2, 32
CLOSE = 1e-3
"""Of the largest logit, in fp32: other orders of additions, and not another model."""


@torch.no_grad()
def largest_difference(directory: Path, folder: Path) -> float:
    """The largest difference of a logit, over the largest logit; of texts of random tokens, in fp32.

    Args:
        directory: the model, of Hugging Face's.
        folder: the files of a torch_dist checkpoint.

    Raises:
        ModelError: it is over `CLOSE`.
    """
    model = read_directory(directory)
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, model.vocab, (TEXTS, LENGTH), generator=draw)
    theirs = _by_transformers(directory, tokens)
    mine = _by_megatron(model, folder, tokens)
    far = float((mine - theirs).abs().max() / theirs.abs().max())
    if not far <= CLOSE:
        raise ModelError(
            f"{folder} is not the model of {directory}: a logit differs by {far:.1e} of the largest one; at most "
            f"{CLOSE} is rounding"
        )
    return far


def _by_transformers(directory: Path, tokens: torch.Tensor) -> torch.Tensor:
    from transformers import AutoModelForCausalLM

    logits: torch.Tensor = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)(tokens).logits
    return logits.flatten(0, 1)


def _by_megatron(model: Model, folder: Path, tokens: torch.Tensor) -> torch.Tensor:
    stand_in_for_cuda(torch.device("cpu"))
    alone()
    if not parallel_state.is_initialized():
        parallel_state.initialize_model_parallel()
    tensor_parallel.model_parallel_cuda_manual_seed(0)
    policy = build_policy(model, settings_model().model_validate({"num_gpus": 1}), Policy)
    stored = Stored(folder)
    for weight, parameter in own_parameters(policy, model).values():
        piece = whole_piece(model, weight, parameter.dtype, partial(_data_of, parameter))
        stored.read([as_stored(piece, weight, stored.shapes())])
    ends = torch.arange(TEXTS + 1, dtype=torch.int32) * LENGTH
    every, none = torch.arange(tokens.numel()), torch.zeros(0, dtype=torch.int64)
    padding = torch.zeros(tokens.numel(), dtype=torch.bool)
    pack = Pack(tokens.flatten(), every % LENGTH, ends, LENGTH, every, none, none, 0, padding, tokens.numel())
    policy.begin(pack, 1.0, trains=False)
    with quietly():
        hidden = policy.of_pack(pack)
        return policy.rows(hidden, pack.rows) @ policy.output_weight()[: model.vocab].T


def _data_of(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.data
