"""What converting costs in memory and time: there, back, and transformers that reads and writes the same model.

Each in a process of its own; memory is the largest resident size, less what it was when everything was imported.
"""

import json
import multiprocessing
import resource
import time
from collections.abc import Callable
from pathlib import Path

import torch
from models_and_steps import CLASSES, CONFIG
from safetensors.torch import save_file

SHARD = 256 * 2**20
MIB = 2**20
HIDDEN, INNER, VOCAB = 1024, 4096, 32768


def conversion(folder: Path, gib: float) -> dict[str, dict[str, float]]:
    """Seconds and MiB of each."""
    folder.mkdir()
    model, found = _write(folder / "model", gib), dict[str, dict[str, float]]()
    size = sum(path.stat().st_size for path in model.glob("*.safetensors")) / MIB
    print(f"a model of {size:.0f} MiB, files of {SHARD // MIB} MiB")
    context = multiprocessing.get_context("spawn")
    for name, work in (("there", _there), ("back", _back), ("transformers", _by_transformers)):
        worker = context.Process(target=work, args=(folder,))
        worker.start()
        worker.join()
        found[name] = json.loads((folder / f"{name}.json").read_text("utf-8"))
        print(
            f"  {name:15} {found[name]['s']:6.1f} s, {found[name]['cpu_s']:6.1f} s of processors, "
            f"{found[name]['mib']:6.0f} MiB"
        )
    return found


def _there(folder: Path) -> None:
    from slime_trainer_megatron.converter import to_torch_dist

    _measured(folder / "there.json", lambda: to_torch_dist(folder / "model", folder / "there", _nothing))


def _back(folder: Path) -> None:
    from slime_trainer_megatron.converter import to_hf

    _measured(folder / "back.json", lambda: to_hf(folder / "there", folder / "back", folder / "model", SHARD, _nothing))


def _by_transformers(folder: Path) -> None:
    from transformers import AutoModelForCausalLM, Qwen3ForCausalLM

    assert Qwen3ForCausalLM is not None, "imported before anything is measured"

    def convert() -> None:
        loaded = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.bfloat16)
        loaded.save_pretrained(folder / "again", max_shard_size=f"{SHARD // MIB}MB")

    _measured(folder / "transformers.json", convert)


def _measured(path: Path, work: Callable[[], object]) -> None:
    torch.set_num_threads(1)
    before, began, used = _peak(), time.perf_counter(), time.process_time()
    work()
    said = {"s": time.perf_counter() - began, "cpu_s": time.process_time() - used, "mib": _peak() - before}
    path.write_text(json.dumps(said), "utf-8")


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _nothing(line: str) -> None:
    pass


def _write(directory: Path, gib: float) -> Path:
    """A Qwen3 in bf16 in files of a layer each."""
    from slime_trainer_megatron.config_json import read_model

    directory.mkdir()
    dimensions = {"hidden_size": HIDDEN, "intermediate_size": INNER, "vocab_size": VOCAB}
    heads = {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 64}
    config = {**CONFIG, **dimensions, **heads, "model_type": "qwen3", "architectures": [CLASSES["qwen3"]]}
    layers, dtype = max(1, round(gib * 2**30 / 2 / _numel({**config, "num_hidden_layers": 1}))), "bfloat16"
    config |= {"num_hidden_layers": layers, "tie_word_embeddings": True, "dtype": dtype}
    (directory / "config.json").write_text(json.dumps(config), "utf-8")
    files: dict[int | None, dict[str, torch.Tensor]] = {}
    draw = torch.Generator().manual_seed(0)
    where, total = dict[str, str](), 0
    for weight in read_model(config).weights():
        for slot in weight.hf:
            tensor = torch.randn(slot.shape, generator=draw).bfloat16()
            files.setdefault(weight.layer, {})[slot.name] = tensor
            total += tensor.nbytes
            where[slot.name] = f"model-{weight.layer}.safetensors"
        if weight.layer is not None and weight.name == "mlp.linear_fc2.weight":
            save_file(files.pop(weight.layer), directory / f"model-{weight.layer}.safetensors", {"format": "pt"})
    save_file(files.pop(None), directory / "model-None.safetensors", {"format": "pt"})
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    return directory


def _numel(config: dict[str, object]) -> int:
    """Weights of a layer."""
    from slime_trainer_megatron.config_json import read_model

    return sum(
        torch.Size(slot.shape).numel()
        for weight in read_model(config).weights()
        if weight.layer == 0
        for slot in weight.hf
    )
