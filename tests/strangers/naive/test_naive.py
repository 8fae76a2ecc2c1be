"""The contract of an engine, kept by one that gives extras: on the kit's model, with files for a transport."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from slime_core.roles import EngineSetup, WeightChannel, WeightReceiver, WeightSlot
from slime_testing import EngineContract, make_launcher, write_tiny_model


@dataclass(frozen=True, slots=True)
class Files(WeightChannel):
    folder: Path

    def receiver(self, engine: int, worker: int = 0) -> WeightReceiver:
        return Reader(self.folder)


@dataclass
class Reader:
    folder: Path
    keeps_tensors = False

    def read(self, version: int) -> Iterator[tuple[str, torch.Tensor]]:
        yield from load_file(self.folder / f"{version}.safetensors").items()

    def close(self) -> None:
        pass


class TestNaive(EngineContract):
    choice = "slime-engine-naive/naive"
    too_long = 300
    fresh = False
    limit_s = 300.0

    def make_setup(self, scratch: Path) -> EngineSetup:
        write_tiny_model(model := scratch / "model")
        launcher = make_launcher(scratch)
        return EngineSetup(
            self.make, 1, hf_checkpoint=model, eos_token_ids=frozenset({2}), launcher=launcher, scratch=scratch
        )

    def publish(self, setup: EngineSetup, version: int) -> WeightChannel:
        """Version 0 is the model's own, 1 has no weight but zeros: every token is as likely."""
        weights = AutoModelForCausalLM.from_pretrained(setup.hf_checkpoint, dtype=torch.float32).named_parameters()
        tensors = {name: each.detach().clone() * (1 - version) for name, each in weights}
        save_file(tensors, setup.scratch / f"{version}.safetensors")
        slots = tuple(WeightSlot(name, tuple(each.shape)) for name, each in tensors.items())
        return Files("files", slots, setup.scratch)
