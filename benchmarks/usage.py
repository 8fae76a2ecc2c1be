"""Usage: a command run to its end, with the memory of all its processes and what other programs took meanwhile.

measured(["slime", "train", "run.toml"])        # Usage(peak_mib=934, foreign_cpu=0.02, gpu_mib=0)
"""

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SAMPLED_S = 0.5


@dataclass(frozen=True, slots=True)
class Usage:
    """What a command used."""

    peak_mib: int
    """Most memory of all its processes together; shared pages counted once."""
    foreign_cpu: float
    """Share of the machine's processor time that other programs had meanwhile."""
    gpu_mib: int = 0
    """Most memory of the GPU that was taken, less what was before; 0 where it was not watched."""


def measured(command: list[str], *, gpu: bool = False) -> Usage:
    """Run a command to its end, watching its processes, and with `gpu` the memory of the first GPU."""
    mark = f"SLIME_BENCHMARK={time.monotonic_ns()}"
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen(command, env=environment | dict([mark.split("=")]))
    peak, ticks = 0, dict[int, int]()
    taken = _gpu_mib if gpu else lambda: 0
    at_first = most = taken()

    def watch() -> None:
        nonlocal peak, most
        while process.poll() is None:
            most = max(most, taken())
            found = list(_processes(mark))
            peak = max(peak, sum(memory for _, memory, _ in found))
            ticks.update({pid: used for pid, _, used in found})
            time.sleep(SAMPLED_S)

    before = _machine_ticks()
    watcher = threading.Thread(target=watch)
    watcher.start()
    code = process.wait()
    watcher.join()
    busy, total = (now - then for now, then in zip(_machine_ticks(), before, strict=True))
    if code:
        raise SystemExit(f"{' '.join(command)} ended with exit code {code}")
    return Usage(peak // 1024, max(0.0, busy - sum(ticks.values())) / total, most - at_first)


def _gpu_mib() -> int:
    """Memory of the first GPU that all processes together have taken."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return (total - free) >> 20


def _processes(mark: str) -> Iterator[tuple[int, int, int]]:
    """Id, proportional set size in KiB and clock ticks used, of every process with an entry in its environment."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            lines = (folder / "smaps_rollup").read_text().splitlines()
            memory = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (OSError, StopIteration):
            continue  # it ended meanwhile
        yield int(folder.name), memory, int(fields[11]) + int(fields[12])


def _machine_ticks() -> tuple[int, int]:
    """Clock ticks that the machine was busy, and all of them."""
    user, nice, system, idle, iowait, *interrupts = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    busy = user + nice + system + sum(interrupts)
    return busy, busy + idle + iowait
