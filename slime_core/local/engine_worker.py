"""The local engine, worker side: one process that decodes batches with the weights of the shared buffer."""

import mmap
from collections.abc import Sequence
from pathlib import Path

import torch

from slime_core.local.decode import DecodeRequest, decode
from slime_core.local.model import load_model
from slime_core.roles import FinishReason, GenerateOutput, GenerateRequest, WeightChannel
from slime_core.train.shared_buffer import open_half


class EngineWorker:
    """Holds one model whose parameters are views into the shared buffer."""

    def __init__(
        self, rank: int, size: int, *, hf_checkpoint: Path, eos_token_ids: frozenset[int], abort_flag: Path
    ) -> None:
        """Build the model; it serves after the first `load_weights`."""
        torch.set_num_threads(1)
        self._model = load_model(hf_checkpoint)
        self._eos = eos_token_ids
        self._version = -1
        with abort_flag.open("r+b") as file:
            self._abort = mmap.mmap(file.fileno(), 1)

    def load_weights(self, published: tuple[WeightChannel, int]) -> None:
        """Bind the model to the half that holds this version."""
        channel, version = published
        self._model.bind(open_half(channel, version))
        self._version = version

    def generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateOutput]:
        """Decode one batch; every request's outcome is independent of its companions."""
        asked = [
            DecodeRequest(
                prompt=request.prompt,
                max_new_tokens=request.sampling.max_new_tokens,
                temperature=request.sampling.temperature,
                top_p=request.sampling.top_p,
                top_k=request.sampling.top_k,
                stop_token_ids=request.sampling.stop_token_ids | self._eos,
                seed=request.seed,
            )
            for request in requests
        ]
        results = decode(self._model, asked, abort=lambda: self._abort[0] != 0)
        return [
            GenerateOutput(result.tokens, result.log_probs, FinishReason(result.finish.value), self._version)
            for result in results
        ]
