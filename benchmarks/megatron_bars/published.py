"""What publishing costs in time and memory: every weight to rank 0, against a copy and a gathering of everything.

Two ranks, by the clock and by processors; the copy is torch's, on one thread. Memory is the largest resident size of
rank 0 meanwhile, less what it was before. Whoever gathers everything has all parts of a model on every rank.
"""

import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from models_and_steps import setup_of

from megatron_bars.sizes import write_size
from slime_trainer_megatron.rank import MegatronRank

TIMES = 7
MIB = 2**20
LAYOUTS: Mapping[str, Mapping[str, object]] = {
    "tensor 2": {"num_gpus": 2, "tensor_model_parallel_size": 2},
    "pipeline 2": {"num_gpus": 2, "pipeline_model_parallel_size": 2},
}


def publication(folder: Path) -> dict[str, dict[str, float]]:
    """Milliseconds and MiB of a model of 20M weights, by layout."""
    model, found = write_size(folder / "model", "20M"), dict[str, dict[str, float]]()
    context = multiprocessing.get_context("spawn")
    for name in LAYOUTS:
        (place := folder / name.replace(" ", "-")).mkdir()
        workers = [context.Process(target=_work, args=(rank, model, place, name)) for rank in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        told: dict[str, float] = json.loads((place / "told.json").read_text("utf-8"))
        found[name] = told
        print(
            f"{name}: published {told['mib']:.0f} MiB in {told['ms']:.1f} ms ({told['cpu_ms']:.1f} ms of rank 0's "
            f"processor), a copy takes {told['copy_ms']:.1f} ms: {told['ms'] / told['copy_ms']:.1f}x; gathering "
            f"everything {told['all_ms']:.1f} ms. Memory beside the rank's own weights: {told['extra_mib']:.0f} MiB, "
            f"limit {told['limit_mib']:.0f}; gathering everything {told['all_extra_mib']:.0f} MiB"
        )
    return found


def _work(rank: int, model: Path, folder: Path, name: str) -> None:
    torch.set_num_threads(1)
    from slime_trainer_megatron.export import AHEAD

    subject = MegatronRank(rank, 2, setup_of(model, folder, LAYOUTS[name]))
    sizes = list[int]()

    def publish() -> None:
        sizes[:] = [tensor.nbytes for _, tensor in subject.weights()]

    def everything() -> None:
        parameters = [each.detach() for each in subject.policy.parameters()]
        # Stages have other parameters: each gives all of its own, padded to the longest.
        flat = torch.cat([each.flatten() for each in parameters])
        longest = torch.tensor(flat.numel())
        dist.all_reduce(longest, op=dist.ReduceOp.MAX)
        mine = flat.new_zeros(int(longest))
        mine[: flat.numel()] = flat
        dist.all_gather([torch.empty_like(mine) for _ in range(2)], mine)

    extra, all_extra = (_peak(each) for each in (publish, everything))
    clock, processors = _timed(publish)
    all_clock, _ = _timed(everything)
    if rank:
        return
    source = torch.zeros(sum(sizes) // 4)
    target = torch.zeros_like(source)
    copies, _ = _timed(lambda: target.copy_(source))
    said = {
        "mib": sum(sizes) / MIB,
        "ms": min(clock),
        "cpu_ms": min(processors),
        "median_ms": statistics.median(clock),
        "copy_ms": min(copies),
        "all_ms": min(all_clock),
        "extra_mib": extra,
        "limit_mib": 2 * max(AHEAD, *sizes) / MIB,
        "all_extra_mib": all_extra,
    }
    (folder / "told.json").write_text(json.dumps(said), "utf-8")


def _timed(work: Callable[[], object]) -> tuple[list[float], list[float]]:
    """Milliseconds by the clock and of this rank's processor."""
    clock, processors = list[float](), list[float]()
    for _ in range(TIMES):
        began, used = time.perf_counter(), time.process_time()
        work()
        clock.append(1000 * (time.perf_counter() - began))
        processors.append(1000 * (time.process_time() - used))
    return clock, processors


def _peak(work: Callable[[], object]) -> float:
    """MiB that the resident size grows by at most; the first time, when nothing that was freed is used again."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")
    before = _of_status("VmRSS")
    work()
    return _of_status("VmHWM") - before


def _of_status(key: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text("ascii").splitlines() if line.startswith(key))
    return int(line.split()[1]) / 1024
