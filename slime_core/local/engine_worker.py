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
        self,
        rank: int,
        size: int,
        *,
        hf_checkpoint: Path,
        eos_token_ids: frozenset[int],
        abort_flag: Path,
        float32_matmul_precision: str,
    ) -> None:
        """Build the model; it serves after the first `load_weights`."""
        torch.set_num_threads(1)
        torch.set_float32_matmul_precision(float32_matmul_precision)
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

    def load_checkpoint(self) -> None:
        """Bind the model to the weights of its directory, as version 0."""
        weights = torch.empty(self._model.numel)
        self._model.read_into(weights)
        self._model.bind(weights)
        self._version = 0

    def generate(self, requests: Sequence[GenerateRequest]) -> list[GenerateOutput]:
        """Decode one batch; every request's outcome is independent of its companions.

        A budget that the model's positions cannot hold is cut; a prompt that leaves no room ends at once, LENGTH.
        """
        asked = {index: made for index, request in enumerate(requests) if (made := self._to_decode(request))}
        results = decode(self._model, list(asked.values()), abort=lambda: self._abort[0] != 0)
        outputs = [GenerateOutput((), (), FinishReason.LENGTH, self._version)] * len(requests)
        for index, result in zip(asked, results, strict=True):
            finish = FinishReason(result.finish.value)
            outputs[index] = GenerateOutput(result.tokens, result.log_probs, finish, self._version)
        return outputs

    def _to_decode(self, request: GenerateRequest) -> DecodeRequest | None:
        sampling = request.sampling
        room = self._model.max_positions - len(request.prompt)
        if room < 1:
            return None
        return DecodeRequest(
            prompt=request.prompt,
            max_new_tokens=min(sampling.max_new_tokens, room),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            stop_token_ids=sampling.stop_token_ids | self._eos,
            seed=request.seed,
        )
