"""The engine on a real server, and log-probs of Hugging Face's model to compare with.

with_real_server(model, tmp_path, use, router={"use": "smg"})        # `await use(engine)` with a new server
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from fake_server_engines import engine_of
from safetensors.torch import load_file
from servers import PYTHON
from transformers import PreTrainedModel, Qwen3MoeConfig

from slime_core.roles import Extra, GenerateOutput, WeightChannel, WeightSlot
from slime_engine_sglang.engine import SglangEngine

FILE = "model.safetensors"
PROMPT = (5, 6, 7, 8, 9)
MOE = Qwen3MoeConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=64,
    moe_intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    num_experts=4,
    num_experts_per_tok=2,
    norm_topk_prob=True,
    max_position_embeddings=256,
    eos_token_id=2,
    bos_token_id=1,
    pad_token_id=None,
    tie_word_embeddings=False,
)


@dataclass(frozen=True, slots=True)
class Files(WeightChannel):
    """One model directory per version."""

    folder: Path

    def path_of(self, version: int) -> Path:
        return self.folder / str(version) / "model.safetensors"


def with_real_server(
    model: Path,
    scratch: Path,
    use: Callable[[SglangEngine], Awaitable[None]],
    *,
    want: frozenset[Extra] = frozenset(),
    **given: object,
) -> None:
    """Start a server and an engine with these settings, use the engine, and end both."""

    async def main() -> None:
        async with engine_of(scratch, model=model, want=want, python=PYTHON, **given) as engine:
            await engine.start()
            await use(engine)

    asyncio.run(main())


def channel_of(models: list[Path], folder: Path) -> Files:
    """A channel with one version per model."""
    slots = tuple(WeightSlot(name, tuple(each.shape)) for name, each in load_file(models[0] / FILE).items())
    return Files("files", slots, folder)


def max_distance(model: PreTrainedModel, prompt: tuple[int, ...], output: GenerateOutput, temperature: float) -> float:
    """The largest difference between log-probs and Hugging Face's in fp32."""
    return float(distances(model, prompt, output, temperature).max())


def distances(
    model: PreTrainedModel, prompt: tuple[int, ...], output: GenerateOutput, temperature: float
) -> torch.Tensor:
    tokens = torch.tensor([[*prompt, *output.tokens]])
    with torch.no_grad():
        log_probs = (model(tokens).logits[0, :-1] / temperature).log_softmax(-1)
    own = log_probs.gather(1, tokens[0, 1:, None])[len(prompt) - 1 :, 0]
    return (own - torch.tensor(list(output.log_probs))).abs()
