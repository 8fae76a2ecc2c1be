"""The naive engine's worker, where torch is."""

from pathlib import Path

import torch
from slime_engine_naive import Drawn
from transformers import AutoModelForCausalLM

from slime_core.roles import Place, WeightChannel, WeightReceiver


class Worker:
    """Computes each token anew, without a cache."""

    def __init__(self, rank: int, size: int, *, model: Path, number: int, place: Place) -> None:
        torch.set_num_threads(1)
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        self._number, self._worker = number, place.rank
        self._version = -1
        self._receiver: tuple[WeightChannel, WeightReceiver] | None = None

    def load(self, given: tuple[WeightChannel, int]) -> None:
        channel, version = given
        if self._receiver is None or self._receiver[0] != channel:
            self._receiver = channel, channel.receiver(self._number, self._worker)
        new = {name: tensor.clone() for name, tensor in self._receiver[1].read(version)}
        for name, parameter in self._model.named_parameters():
            parameter.data.copy_(new[name])
        self._version = version

    @torch.inference_mode()
    def next(self, wanted: tuple[list[int], float, float, int, int]) -> Drawn:
        context, temperature, top_p, top_k, seed = wanted
        logits = self._model(torch.tensor([context])).logits[0, -1]
        log_probs = (logits / (temperature or 1.0)).log_softmax(-1)
        ranked = log_probs.argsort(descending=True, stable=True)
        ranked = ranked[:top_k] if top_k > 0 else ranked
        probs = log_probs[ranked].exp()
        kept = 1 if temperature == 0 else int((probs.cumsum(0)[:-1] < top_p).sum()) + 1
        draw = torch.multinomial(probs[:kept], 1, generator=torch.Generator().manual_seed(seed))
        token = int(ranked[int(draw)])
        return Drawn(token, float(log_probs[token]), ranked[:kept].tolist(), self._version)

    def close(self) -> None:
        if self._receiver is not None:
            self._receiver[1].close()
