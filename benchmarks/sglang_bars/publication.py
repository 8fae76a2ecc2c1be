"""How long a version takes from the trainer's file to a server, beside a plain copy of as many bytes in the same run.

    python -m benchmarks.sglang_bars.publication --python .venv-sglang/bin/python [--transport distributed | tensor]

The demo's model, and one of SmolLM2-135M's shape with random weights, to an idle server on the CPU: by `shared-buffer`,
of a file that is written already, or by `distributed` or `tensor`, from the trainer's own tensors.
The trainer is a process of its own, as it is in a run: this one is the driver, whose memory is measured.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from slime_core.roles import EngineSetup, WeightChannel, WeightSlot
from slime_engine_sglang.checkpoint import weight_shapes
from slime_engine_sglang.collective.transports import (
    DistributedChannel,
    DistributedSettings,
    TensorChannel,
    TensorSettings,
)
from slime_engine_sglang.engine import SglangEngine
from slime_engine_sglang.settings import SglangSettings
from slime_testing import make_launcher
from slime_train.shared_buffer import SharedBufferChannel

MODELS = ("demo", "smollm2")
VERSIONS = 15
MIB = 2**20


class Trainer:
    """A process with torch that makes a model and writes versions of it."""

    def __init__(self, kind: str, folder: Path, transport: str) -> None:
        """Have a model made in `folder/model`; what is published lies in `folder/weights`."""
        module, pipe, here = "sglang_bars.publication", subprocess.PIPE, Path(__file__).parents[1]
        command = [sys.executable, "-m", module, "--trainer", kind, str(folder.absolute()), "--transport", transport]
        self._process = subprocess.Popen(command, cwd=here, stdin=pipe, stdout=pipe, text=True)
        self.ask("ready")

    def ask(self, what: str) -> float:
        """Milliseconds that something took there."""
        ends = self._process.stdin, self._process.stdout
        assert ends[0] is not None, "it is a pipe"
        assert ends[1] is not None, "it is a pipe"
        print(what, file=ends[0], flush=True)
        line = ends[1].readline()
        if not line:
            raise SystemExit("the process that writes weights has ended")
        return float(line)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def train(kind: str, folder: Path, transport: str, asked: IO[str], told: IO[str]) -> None:
    """What that process does: a word a line is asked for, and milliseconds are told."""
    import torch

    torch.set_num_threads(1)
    model = folder / "model"
    _make(kind, model)
    channel = channel_of(model, folder / "weights", transport)
    if isinstance(channel, SharedBufferChannel):
        for file in channel.files():
            file.make()
    sender = channel.sender(0, 1)
    generator = torch.Generator().manual_seed(0)
    weights = [(slot.name, 0.02 * torch.randn(slot.shape, generator=generator)) for slot in channel.slots]
    flat = torch.cat([each.view(-1) for _, each in weights])
    copy = flat.clone()
    for line in asked:
        began = time.perf_counter()
        match line.split():
            case ["copy"]:
                copy.copy_(flat)
            case ["send", number]:
                sender.send(int(number), iter(weights), [0])
            case _:
                pass
        print(1e3 * (time.perf_counter() - began), file=told, flush=True)


def _make(kind: str, model: Path) -> None:
    """Write a model directory."""
    from slime_local.demo.tiny import write_tiny_model

    write_tiny_model(model, task="word", seed=0)  # whose tokenizer serves the other as well
    if kind == "demo":
        return
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(model)


def channel_of(model: Path, folder: Path, transport: str) -> WeightChannel:
    """The same on both sides."""
    folder.mkdir(parents=True, exist_ok=True)
    slots = tuple(WeightSlot(name, shape) for name, shape in weight_shapes(model).items())
    if transport == "distributed":
        return DistributedChannel(transport, slots, folder, "", DistributedSettings())
    if transport == "tensor":
        return TensorChannel(transport, slots, folder, "", TensorSettings())
    return SharedBufferChannel(transport, slots, folder)


def memory(what: str) -> int:
    """Bytes of this process: `VmRSS` now, `VmHWM` at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))


def settled() -> int:
    """Bytes of this process now, from which on `VmHWM` is told anew."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


async def publish(engine: SglangEngine, channel: WeightChannel, trainer: Trainer) -> dict[str, float]:
    """Milliseconds of each part, medians."""
    sent, loaded, copied = [], [], []
    for version in range(VERSIONS):
        sending = asyncio.to_thread(trainer.ask, f"send {version}")
        if channel.late_readers:
            sent.append(await sending)
        began = time.perf_counter()
        if channel.late_readers:
            await engine.load_weights(channel, version)
        else:
            took, _ = await asyncio.gather(sending, engine.load_weights(channel, version))
            sent.append(took)
        loaded.append(1e3 * (time.perf_counter() - began))
        copied.append(trainer.ask("copy"))
        if version == 1:
            before = settled()  # of what is imported and connected once
    nbytes = sum(slot.nbytes for slot in channel.slots)
    median, copy = statistics.median(loaded[2:]), statistics.median(copied)
    return {
        "tensors": len(channel.slots),
        "megabytes": nbytes / 1e6,
        "send_ms": statistics.median(sent),
        "load_ms": median,
        "load_ms_least": min(loaded[2:]),
        "load_ms_most": max(loaded[2:]),
        "copy_ms": copy,
        "copy_gb_s": nbytes / copy / 1e6,
        "share_of_copy": copy / median,
        "driver_rss_growth_mib": (memory("VmHWM") - before) / MIB,
    }


def measure(kind: str, python: Path, transport: str = "shared-buffer") -> dict[str, float]:
    """The figures of one model."""

    async def main(folder: Path) -> dict[str, float]:
        trainer = Trainer(kind, folder, transport)
        launcher = make_launcher(folder / "logs")
        setup = EngineSetup(
            _nothing,
            0,
            hf_checkpoint=folder / "model",
            eos_token_ids=frozenset({2}),
            launcher=launcher,
            scratch=folder / "engine",
        )
        engine = SglangEngine(SglangSettings(python=python), setup)
        try:
            await engine.start()
            return await publish(engine, channel_of(folder / "model", folder / "weights", transport), trainer)
        finally:
            trainer.close()
            await engine.close()
            await launcher.close()

    with scratch() as folder:
        return asyncio.run(main(folder))


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for a model and its versions."""
    with tempfile.TemporaryDirectory(prefix="publication-") as folder:
        yield Path(folder)


def _nothing(role: str, name: str, **settings: object) -> object:
    raise LookupError(name)


def main(arguments: list[str] | None = None) -> None:
    """Print the figures of each model, a JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, default=Path(".venv-sglang/bin/python"), help="Python that has SGLang")
    parser.add_argument("--only", choices=MODELS, help="one of the models alone")
    parser.add_argument("--transport", choices=("shared-buffer", "distributed", "tensor"), default="shared-buffer")
    parser.add_argument("--trainer", nargs=2, metavar=("KIND", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.trainer:
        train(given.trainer[0], Path(given.trainer[1]), given.transport, sys.stdin, sys.stdout)
        return
    for kind in [given.only] if given.only else MODELS:
        figures = measure(kind, given.python, given.transport)
        print(json.dumps({kind: {name: round(each, 2) for name, each in figures.items()}}), flush=True)


if __name__ == "__main__":
    main()
