"""The plain path: any causal LM, computed by Hugging Face's own forward on padded rows."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from slime_core.errors import ModelError
from slime_local.model.base import LocalModel, check_log_probs_call
from slime_local.model.ops import Context, call
from slime_local.model.tokens import GroupTokens, TokenLogProbs
from slime_local.model.weights import Slot

_ENDLESS = 1 << 30  # for models whose config has no max_position_embeddings
_CACHE_ARGUMENTS = ("cache", "past_key_values")  # since transformers 5.24, and before it


class _Entropy(Function):
    """Entropy that saves only the log-probs for backward, which log-softmax saves anyway, and no probabilities."""

    @staticmethod
    def forward(ctx: Context, log_probs: Tensor) -> Tensor:
        ctx.save_for_backward(log_probs)
        entropy: Tensor = torch.linalg.vecdot(log_probs.exp(), log_probs)
        return entropy.neg_()

    @staticmethod
    def backward(ctx: Context, d_entropy: Tensor) -> Tensor:
        log_probs: Tensor = ctx.saved_tensors[0]
        return (log_probs + 1).mul_(log_probs.exp()).mul_(-d_entropy[:, None])


class PlainModel(LocalModel):
    """Owns the Hugging Face module; its parameters are views into the flat vector."""

    path = "plain"

    def __init__(
        self, source: Path, why: str, layout: tuple[Slot, ...], hf: PreTrainedModel, flat: Tensor, bf16: bool = False
    ) -> None:
        config = hf.config
        limit = getattr(config, "max_position_embeddings", None) or _ENDLESS
        super().__init__(source, why, layout, config.vocab_size, limit)
        self.hf, self.bf16 = hf, bf16
        if bf16:
            _keep_head_in_fp32(hf)
        self._parameters = [hf.get_parameter(slot.name) for slot in layout]
        arguments = inspect.signature(hf.forward).parameters
        self.takes_positions = "position_ids" in arguments
        self.cache_argument = next((name for name in _CACHE_ARGUMENTS if name in arguments), "")
        if not self.cache_argument:
            raise ModelError(
                f"{type(hf).__name__} in {source} has no key-value cache to decode with; expected a transformer decoder"
            )
        self.bind(flat)

    @property
    def flat(self) -> Tensor:
        """The bound vector, [numel]."""
        return self._flat

    @property
    def token_bytes(self) -> int:
        """Bytes of a token's keys and values, if every layer uses the plain cache."""
        config = self.hf.config
        heads = getattr(config, "num_attention_heads", None) or 1
        width = getattr(config, "head_dim", None) or config.hidden_size // heads
        kept = getattr(config, "num_key_value_heads", None) or heads
        return int(2 * config.num_hidden_layers * kept * width * self._flat.element_size())

    def _bind(self, flat: Tensor) -> None:
        self._flat = flat
        self._rounded: dict[str, Tensor] | None = None
        self._point_to({})

    def _point_to(self, others: Mapping[str, Tensor]) -> None:
        for slot, parameter in zip(self.layout, self._parameters, strict=True):
            parameter.data = others[slot.name] if slot.name in others else slot.view(self._flat)

    def log_probs(
        self, groups: Sequence[GroupTokens], *, temperature: float = 1.0, grad: Tensor | None = None
    ) -> TokenLogProbs:
        """Log-prob and entropy of every response token; see `LocalModel.log_probs`."""
        check_log_probs_call(groups, temperature, grad, self.numel)
        rows = _Rows.of(groups)
        with self._gradients(grad):
            with self.precision():
                logits: Tensor = self.hf(input_ids=rows.ids, attention_mask=rows.mask, use_cache=False).logits
            log_probs = torch.log_softmax(logits[:, :-1][rows.predicted[:, 1:]].float() / temperature, -1)
            chosen = log_probs.gather(1, rows.ids[rows.predicted][:, None])[:, 0]
            return TokenLogProbs(chosen, call(_Entropy, log_probs))

    @property
    def hidden_size(self) -> int:
        """Width of the hidden states."""
        width: int = self.hf.config.hidden_size
        return width

    def values(self, groups: Sequence[GroupTokens], head: Tensor, *, grad: Tensor | None = None) -> Tensor:
        """A linear function of the states that predict each response token; see `LocalModel.values`."""
        check_log_probs_call(groups, 1.0, grad, self.numel)
        rows = _Rows.of(groups)
        with self._gradients(grad):
            # Run the whole model, so that steps that only its class applies to the states are included.
            with self.precision():
                out = self.hf(input_ids=rows.ids, attention_mask=rows.mask, use_cache=False, output_hidden_states=True)
            states: Tensor = out.hidden_states[-1]
            return states[:, :-1][rows.predicted[:, 1:]].float().mv(head)

    def precision(self) -> AbstractContextManager[object]:
        """Context that sets the forward's precision; the backward pass uses the same."""
        return torch.autocast(self._flat.device.type, torch.bfloat16) if self.bf16 else nullcontext()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """`precision` with matrices rounded once for each `bind`: for single tokens, rounding is half the work."""
        if not self.bf16:
            yield
            return
        if self._rounded is None:
            self._rounded = {
                slot.name: slot.view(self._flat).bfloat16() for slot in self.layout if slot.name in self.linear
            }
        self._point_to(self._rounded)
        try:
            with self.precision():
                yield
        finally:
            self._point_to({})

    @contextmanager
    def _gradients(self, grad: Tensor | None) -> Iterator[None]:
        """Backward adds into this vector; None computes without a graph."""
        for slot, parameter in zip(self.layout, self._parameters, strict=True):
            is_trained = grad is not None and slot.name in self.trained
            parameter.requires_grad_(is_trained)
            parameter.grad = slot.view(grad) if grad is not None and is_trained else None
        with torch.set_grad_enabled(grad is not None):
            yield

    def checkpoint_layers(self) -> None:
        """Keep only each layer's input; see `LocalModel.checkpoint_layers`.

        Hugging Face's switch is not used: it works only in training mode, where dropout is on.
        """
        layers = [each for each in self.hf.modules() if isinstance(each, GradientCheckpointingLayer)]
        if not layers:
            raise ModelError(
                f"gradient_checkpointing: {type(self.hf).__name__} in {self.source} has no layers that can be computed "
                "again; leave it out, and lower max_tokens_per_micro_batch to save memory"
            )
        for each in layers:
            each.forward = _checkpointed(each.forward)

    def start_decode(self) -> "PlainDecode":
        """A decode without rows."""
        return PlainDecode(self)

    def _save_weights(self, directory: Path, flat: Tensor) -> None:
        # Buffers are part of the model too: DeepSeek-V3 chooses experts by one. A copy of each tensor, because
        # safetensors refuses tensors that share storage.
        buffers = self.hf.state_dict().keys() & dict(self.hf.named_buffers()).keys()
        tensors = {name: self.hf.get_buffer(name).detach().cpu().clone() for name in sorted(buffers)}
        tensors |= {slot.name: slot.view(flat).clone() for slot in self.layout}
        self.hf.save_pretrained(directory, state_dict=tensors)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Prompts and responses as right-padded rows [R, L]."""

    ids: Tensor
    mask: Tensor
    predicted: Tensor

    @classmethod
    def of(cls, groups: Sequence[GroupTokens]) -> "_Rows":
        texts = [([*g.prompt, *r], len(r)) for g in groups for r in g.responses]
        width = max(len(text) for text, _ in texts)
        ids = torch.zeros(len(texts), width, dtype=torch.long)
        predicted = torch.zeros(len(texts), width, dtype=torch.bool)
        mask = torch.zeros(len(texts), width, dtype=torch.long)
        for row, (text, response) in enumerate(texts):
            ids[row, : len(text)] = torch.tensor(text)
            mask[row, : len(text)] = 1
            predicted[row, len(text) - response : len(text)] = True
        return cls(ids, mask, predicted)


def _keep_head_in_fp32(hf: PreTrainedModel) -> None:
    head: torch.nn.Module = hf.get_output_embeddings()  # type: ignore[no-untyped-call]  # torch's and transformers' own are untyped
    inner = head.forward

    def forward(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            out: Tensor = inner(x.float())
            return out

    head.forward = forward


def _checkpointed(forward: Callable[..., object]) -> Callable[..., object]:
    def again(*args: object, **kwargs: object) -> object:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        bound = partial(forward, *args, **kwargs)
        out: object = checkpoint(bound, use_reentrant=False, preserve_rng_state=False)
        return out

    return again


class PlainDecode:
    """Decode state in parts: the rows of each `add` have a separate cache; see `DecodeState`."""

    def __init__(self, model: PlainModel) -> None:
        """No rows yet."""
        self._model = model
        self._parts: list[_Part] = []
        self._part_of = self._place = torch.zeros(0, dtype=torch.long)
        """[rows] part and place of each row."""

    @property
    def logits(self) -> Tensor:
        """[rows, V] of the next token."""
        logits = torch.empty(len(self._part_of), self._model.vocab_size)
        for number, part in enumerate(self._parts):
            here = self._part_of == number
            logits[here] = part.logits[self._place[here]]
        return logits

    def add(self, prompts: Sequence[Sequence[int]], prompt_of_row: Sequence[int], max_rows: int) -> None:
        """Prefill prompts and open rows; see `DecodeState.add`."""
        part_of, place = torch.full((len(prompt_of_row),), len(self._parts)), torch.arange(len(prompt_of_row))
        self._part_of, self._place = torch.cat([self._part_of, part_of]), torch.cat([self._place, place])
        self._parts.append(_Part(self._model, prompts, prompt_of_row))

    def clear(self) -> None:
        """Remove all rows."""
        self._parts, self._part_of, self._place = [], self._part_of[:0], self._place[:0]

    def select(self, sources: Tensor) -> None:
        """Drop, move or fork rows."""
        part_of, from_place = self._part_of[sources], self._place[sources]
        left, self._part_of = torch.unique(part_of, return_inverse=True)
        self._parts = [self._parts[number] for number in left.tolist()]
        self._place = torch.empty_like(from_place)
        for number, part in enumerate(self._parts):
            here = self._part_of == number
            part.select(from_place[here])
            self._place[here] = torch.arange(int(here.sum()))

    def step(self, tokens: Tensor) -> None:
        """Append one token to each row."""
        for number, part in enumerate(self._parts):
            part.step(tokens[self._part_of == number])


class _Part:
    def __init__(self, model: PlainModel, prompts: Sequence[Sequence[int]], prompt_of_row: Sequence[int]) -> None:
        self._model = model
        self._cache = DynamicCache(config=model.hf.config)
        width = max(len(prompt) for prompt in prompts)
        ids = torch.zeros(len(prompts), width, dtype=torch.long)
        self._mask = torch.zeros(len(prompts), width, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            self._mask[row, width - len(prompt) :] = 1
        self.logits = self._forward(ids, (self._mask.cumsum(1) - 1).clamp_(min=0))
        rows = torch.tensor(prompt_of_row)
        self.select(rows)
        self.logits = self.logits[rows]

    def select(self, sources: Tensor) -> None:
        self._cache.batch_select_indices(sources)
        self._mask = self._mask[sources]

    def step(self, tokens: Tensor) -> None:
        positions = self._mask.sum(1, keepdim=True)
        self._mask = torch.cat([self._mask, torch.ones_like(positions)], 1)
        self.logits = self._forward(tokens[:, None], positions)

    @torch.no_grad()
    def _forward(self, ids: Tensor, positions: Tensor) -> Tensor:
        extra: dict[str, Tensor | DynamicCache] = {self._model.cache_argument: self._cache}
        if self._model.takes_positions:
            extra["position_ids"] = positions
        with self._model.serving():
            out = self._model.hf(input_ids=ids, attention_mask=self._mask, use_cache=True, **extra)
        logits: Tensor = out.logits[:, -1].float()
        return logits


LENGTHS = (8, 5)
"""Tokens of two texts, so that one row is padded."""
NEAR, NEAR_BF16 = 1e-3, 5e-2
"""Largest rounding differences relative to the largest logit: between row shapes, and in bf16."""
SAME = 1e-5
"""The same for rows of one shape; small, since a random model's look-ahead has little effect."""


@torch.no_grad()
def probe(model: PlainModel) -> None:
    """Compare forwards of two short texts.

    Raises:
        ModelError: a token's logits depend on later ones, or decoding gives other logits than the forward.
    """
    kind = type(model.hf).__name__
    vocab = model.vocab_size
    texts = [[(7 * row + 3 * place + 1) % vocab for place in range(length)] for row, length in enumerate(LENGTHS)]
    try:
        first, second = (_logits(model, text) for text in texts)
    except Exception as error:  # any error of the model's own code
        raise ModelError(
            f"{kind} in {model.source} cannot compute a text of {LENGTHS[0]} tokens: {type(error).__name__}: "
            f"{str(error)[:300]}; expected a model that Hugging Face's own code runs with this config.json"
        ) from error
    changed = [*texts[0][:-1], (texts[0][-1] + 1) % vocab]
    if not _is_near(_logits(model, changed)[:-1], first[:-1], NEAR_BF16 if model.bf16 else SAME):
        raise ModelError(
            f"{kind} in {model.source} is not causal: what it predicts after a token depends on later ones; expected "
            "a decoder, which can generate"
        )
    try:
        decode = model.start_decode()
        decode.add([text[:-2] for text in texts], [0, 1], 2)
        found = [decode.logits]
        for back in (2, 1):
            decode.select(torch.tensor([1, 0]))
            decode.step(torch.tensor([texts[1 if back == 2 else 0][-back], texts[0 if back == 2 else 1][-back]]))
            found.append(decode.logits[[1, 0]] if back == 2 else decode.logits)
    except Exception as error:  # any error of the model's own code
        raise ModelError(_cannot_decode(model, f"{type(error).__name__}: {error}")) from error
    for step, logits in enumerate(found):
        expected = torch.stack([first[len(texts[0]) - 3 + step], second[len(texts[1]) - 3 + step]])
        if not _is_near(logits, expected, NEAR_BF16 if model.bf16 else NEAR):
            raise ModelError(_cannot_decode(model, "its logits change with a cache and padding"))


def _cannot_decode(model: PlainModel, problem: str) -> str:
    kinds = sorted(set(getattr(model.hf.config, "layer_types", None) or ()))
    layers = f" (layers: {', '.join(kinds)})" if kinds else ""
    return (
        f"{type(model.hf).__name__} in {model.source} cannot be decoded by the local engine{layers}: {problem}. The "
        "engine does not support layers with a recurrent state, such as linear attention; choose a model with "
        "attention in all layers"
    )


def _logits(model: PlainModel, text: Sequence[int]) -> Tensor:
    with model.serving():
        logits: Tensor = model.hf(input_ids=torch.tensor([text]), use_cache=False).logits[0].float()
    return logits


def _is_near(found: Tensor, expected: Tensor, near: float) -> bool:
    return bool((found - expected).abs().max() <= near * expected.abs().max())
