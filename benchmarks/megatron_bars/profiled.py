"""Where the time of a step goes: the operations that take most of it themselves, by torch's profiler, on one rank."""

import multiprocessing
from pathlib import Path

import torch
from models_and_steps import dealt, setup_of, steps_of
from torch.profiler import ProfilerActivity, profile

from megatron_bars.sizes import SIZES, write_size

ROWS, WARM = 12, 2


def profiles(folder: Path) -> dict[str, dict[str, float]]:
    """Of each size, the share of each operation in a step's processor time; printed as a table, too."""
    folder.mkdir()
    context, found = multiprocessing.get_context("spawn"), dict[str, dict[str, float]]()
    for size in SIZES:
        model, (here, there) = write_size(folder / size, size), context.Pipe(duplex=False)
        worker = context.Process(target=_work, args=(model, folder, there))
        worker.start()
        found[size] = here.recv()
        worker.join()
        print(f"{size} weights, one rank, one thread: share of a step's processor time")
        for name, share in found[size].items():
            print(f"  {name:60} {100 * share:5.1f} %")
    return found


def _work(model: Path, folder: Path, there: object) -> None:
    from multiprocessing.connection import Connection

    from slime_trainer_megatron.rank import MegatronRank

    assert isinstance(there, Connection)
    torch.set_num_threads(1)
    rank = MegatronRank(0, 1, setup_of(model, folder, {"num_gpus": 1, "max_tokens_per_gpu": 4096}))
    batches = [dealt(rows, 1, at)[0] for at, rows in enumerate(steps_of(model, WARM + 1))]
    for batch in batches[:WARM]:
        rank.train_step(batch)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        rank.train_step(batches[WARM])
    events = sorted(seen.key_averages(), key=lambda each: -each.self_cpu_time_total)
    total = sum(each.self_cpu_time_total for each in events)
    there.send({each.key: each.self_cpu_time_total / total for each in events[:ROWS]})
