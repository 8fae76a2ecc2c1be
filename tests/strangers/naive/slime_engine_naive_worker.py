"""The naive engine's worker, where torch is."""

from pathlib import Path

import torch
from slime_engine_naive import Drawn, Facts, Wanted
from transformers import AutoModelForCausalLM

from slime_core.errors import ModelError
from slime_core.roles import Place, WeightChannel, WeightReceiver


class Worker:
    """Computes each token anew, without a cache."""

    def __init__(self, rank: int, size: int, *, model: Path, number: int, place: Place) -> None:
        torch.set_num_threads(1)
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        self._number, self._worker = number, place.rank
        self._version = -1
        self._receiver: tuple[WeightChannel, WeightReceiver] | None = None

    def facts(self) -> Facts:
        config = self._model.config
        return Facts(config.vocab_size, config.max_position_embeddings)

    def load(self, given: tuple[WeightChannel, int]) -> None:
        channel, version = given
        own = dict(self._model.named_parameters())
        for slot in channel.slots:
            if slot.name not in own or tuple(own[slot.name].shape) != slot.shape:
                raise ModelError(f"the model has no weight {slot}")
        if missing := sorted(own.keys() - {slot.name for slot in channel.slots}):
            raise ModelError(f"weight {missing[0]} of the model is not sent")
        if self._receiver is None or self._receiver[0] != channel:
            self._receiver = channel, channel.receiver(self._number, self._worker)
        new = {name: tensor.clone() for name, tensor in self._receiver[1].read(version)}
        for name, parameter in own.items():
            parameter.data.copy_(new[name])
        self._version = version

    def next(self, wanted: Wanted) -> Drawn:
        logits = self._logits(wanted.context)[-1]
        log_probs = (logits / (wanted.temperature or 1.0)).log_softmax(-1)
        ranked = log_probs.argsort(descending=True, stable=True)
        ranked = ranked[: wanted.top_k] if wanted.top_k > 0 else ranked
        probs = log_probs[ranked].exp()
        kept = 1 if wanted.temperature == 0 else int((probs.cumsum(0)[:-1] < wanted.top_p).sum()) + 1
        draw = torch.multinomial(probs[:kept], 1, generator=torch.Generator().manual_seed(wanted.seed))
        token = int(ranked[int(draw)])
        return Drawn(token, float(log_probs[token]), ranked[:kept].tolist(), self._version)

    def prompt_log_probs(self, prompt: list[int]) -> list[float]:
        log_probs = self._logits(prompt).log_softmax(-1)
        return [float(log_probs[place, token]) for place, token in enumerate(prompt[1:])]

    def close(self) -> None:
        if self._receiver is not None:
            self._receiver[1].close()

    @torch.inference_mode()
    def _logits(self, context: object) -> torch.Tensor:
        return self._model(torch.tensor([context])).logits[0]
