"""What publishing costs: every weight gathered to rank 0, against a copy of as many bytes.

Two ranks of tensor parallelism, by the clock and by processors; the copy is torch's, on one thread.
"""

import json
import multiprocessing
import statistics
import time
from pathlib import Path

import torch
from made import setup_of

from megatron_bars.sizes import write_size

TIMES = 7
TENSOR = {"num_gpus": 2, "tensor_model_parallel_size": 2}


def publication(folder: Path) -> dict[str, float]:
    """Milliseconds of both, of a model of 20M weights."""
    model = write_size(folder / "model", "20M")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_work, args=(rank, model, folder)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    told: dict[str, float] = json.loads((folder / "told.json").read_text("utf-8"))
    print(
        f"published {told['mib']:.0f} MiB in {told['ms']:.1f} ms ({told['cpu_ms']:.1f} ms of rank 0's processor), a "
        f"copy takes {told['copy_ms']:.1f} ms: {told['ms'] / told['copy_ms']:.1f}x"
    )
    return told


def _work(rank: int, model: Path, folder: Path) -> None:
    torch.set_num_threads(1)
    from slime_trainer_megatron.rank import MegatronRank

    subject = MegatronRank(rank, 2, setup_of(model, folder, TENSOR))
    clock, processors, copies, size = list[float](), list[float](), list[float](), 0
    for _ in range(TIMES):
        began, used, size = time.perf_counter(), time.process_time(), 0
        for _, tensor in subject.weights():
            size += tensor.nbytes
        clock.append(time.perf_counter() - began)
        processors.append(time.process_time() - used)
    if rank:
        return
    source = torch.zeros(size // 4)
    target = torch.zeros_like(source)
    for _ in range(TIMES):
        began = time.perf_counter()
        target.copy_(source)
        copies.append(time.perf_counter() - began)
    said = {"mib": size / 2**20, "ms": 1000 * min(clock), "cpu_ms": 1000 * min(processors)}
    said |= {"median_ms": 1000 * statistics.median(clock), "copy_ms": 1000 * min(copies)}
    (folder / "told.json").write_text(json.dumps(said), "utf-8")
