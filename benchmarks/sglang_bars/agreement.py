"""Whose log-probs are off, the sampler's or the trainer's: both of a run's tokens, against a forward in float64.

    slime train examples/sglang.toml --save-interval 1
    python -m benchmarks.sglang_bars.agreement runs/sglang

Of each rollout whose weights are still there it tells how far apart they are, and of the token that is worst what comes
of one operation in fp32 where all others are in float64. The model is a Qwen3, as the demo's is.
"""

import argparse
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import silu

from slime_local.model import GroupTokens, load_model

OPERATIONS = ("angles", "attention", "products", "norms", "head")


@dataclass(frozen=True)
class Exact:
    """The model in float64, but for some operations."""

    config: Mapping[str, Any]
    weights: Mapping[str, Tensor]
    single: str = ""
    """Which of `OPERATIONS` is done in fp32."""

    @classmethod
    def read(cls, model: Path) -> "Exact":
        """That of a model directory."""
        return cls(json.loads((model / "config.json").read_text("utf-8")), load_file(model / "model.safetensors"))

    def log_probs(self, tokens: Tensor) -> Tensor:
        """Of tokens [n] but the first, [n - 1]."""
        x = self.weights["model.embed_tokens.weight"][tokens].double()
        turn = self._turn(len(tokens))
        for layer in range(self.config["num_hidden_layers"]):
            here = f"model.layers.{layer}"
            x = x + self._attended(self._norm(x, f"{here}.input_layernorm"), f"{here}.self_attn", turn)
            inner = self._norm(x, f"{here}.post_attention_layernorm")
            gate, up = (self._product(inner, f"{here}.mlp.{name}_proj") for name in ("gate", "up"))
            x = x + self._product(silu(gate) * up, f"{here}.mlp.down_proj")
        head = "lm_head" if "lm_head.weight" in self.weights else "model.embed_tokens"
        logits = self._product(self._norm(x, "model.norm"), head, "head")
        return logits[:-1].log_softmax(-1).gather(1, tokens[1:, None])[:, 0]

    def _kind(self, operation: str) -> torch.dtype:
        return torch.float32 if operation == self.single else torch.float64

    def _turn(self, length: int) -> tuple[Tensor, Tensor]:
        kind, dim = self._kind("angles"), self.config["head_dim"]
        frequencies = 1.0 / self.config["rope_parameters"]["rope_theta"] ** (torch.arange(0, dim, 2).to(kind) / dim)
        angles = torch.arange(length).to(kind)[:, None, None] * frequencies
        return angles.cos().double(), angles.sin().double()

    def _norm(self, x: Tensor, name: str) -> Tensor:
        kind = self._kind("norms")
        x, weight = x.to(kind), self.weights[f"{name}.weight"].to(kind)
        return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"]) * weight).double()

    def _product(self, x: Tensor, name: str, operation: str = "products") -> Tensor:
        kind = self._kind(operation)
        return (x.to(kind) @ self.weights[f"{name}.weight"].to(kind).T).double()

    def _attended(self, x: Tensor, name: str, turn: tuple[Tensor, Tensor]) -> Tensor:
        dim, repeated = (
            self.config["head_dim"],
            self.config["num_attention_heads"] // self.config["num_key_value_heads"],
        )
        q, k, v = (self._product(x, f"{name}.{each}_proj").view(len(x), -1, dim) for each in "qkv")
        q, k = (turned(self._norm(each, f"{name}.{which}_norm"), turn) for each, which in ((q, "q"), (k, "k")))
        k, v = (each.repeat_interleave(repeated, 1) for each in (k, v))
        q, k, v = (each.transpose(0, 1).to(self._kind("attention")) for each in (q, k, v))
        hidden = torch.full((len(x), len(x)), -torch.inf, dtype=q.dtype).triu(1)
        out = (q @ k.transpose(1, 2) * dim**-0.5 + hidden).softmax(-1) @ v
        return self._product(out.transpose(0, 1).flatten(1).double(), f"{name}.o_proj")


def turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Rotated by the angles of its position."""
    one, other = x.chunk(2, -1)
    cos, sin = turn
    return torch.cat([one * cos - other * sin, other * cos + one * sin], -1)


def rollouts(run: Path) -> Iterator[tuple[Path, Path]]:
    """The model of a rollout and the file of its samples, where both are there."""
    first = Path(tomllib.loads((run / "run.toml").read_text("utf-8"))["hf_checkpoint"])
    for samples in sorted((run / "samples").glob("rollout_*.parquet")):
        model = run / "checkpoints" / samples.stem / "hf"
        if samples.stem == "rollout_000000":
            yield first, samples
        elif model.exists():
            yield model, samples


def measure(model: Path, samples: Path) -> dict[str, dict[str, float]]:
    """Distances in nats, over all tokens of a rollout."""
    exact, local = Exact.read(model), load_model(model)
    weights = torch.empty(local.numel)
    local.read_into(weights)
    local.bind(weights)
    sampler, trainer, both, texts = [], [], [], []
    for row in parquet.read_table(samples).to_pylist():
        tokens, made = torch.tensor(row["tokens"]), row["response_length"]
        start = len(tokens) - made
        group = GroupTokens(tuple(row["tokens"][:start]), (tuple(row["tokens"][start:]),))
        sampler.append(torch.tensor(row["rollout_log_probs"]).double())
        trainer.append(local.log_probs([group]).log_probs_T.double())
        both.append(exact.log_probs(tokens)[start - 1 :])
        texts += [(tokens, start - 1 + place) for place in range(made)]
    sampled, trained, right = map(torch.cat, (sampler, trainer, both))
    tokens, place = texts[int((sampled - trained).abs().argmax())]
    usual = exact.log_probs(tokens)[place]
    one = {each: float(replace(exact, single=each).log_probs(tokens)[place] - usual) for each in OPERATIONS}
    return {
        "sampler - trainer": spread(sampled - trained),
        "sampler - float64": spread(sampled - right),
        "trainer - float64": spread(trained - right),
        "the worst token, one operation in fp32": {name: float(f"{abs(each):.1e}") for name, each in one.items()},
    }


def spread(distance: Tensor) -> dict[str, float]:
    """How distances are distributed."""
    sizes = distance.abs()
    found = {"mean": sizes.mean(), "p99": sizes.quantile(0.99), "max": sizes.max()}
    return {"tokens": len(sizes), **{name: float(f"{float(each):.1e}") for name, each in found.items()}}


def main() -> None:
    """Print a JSON object a rollout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run folder")
    torch.set_num_threads(1)
    for model, samples in rollouts(parser.parse_args().run):
        print(json.dumps({samples.stem: measure(model, samples)}), flush=True)


if __name__ == "__main__":
    main()
