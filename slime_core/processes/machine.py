"""Machine: what this machine has for workers, and what is taken of it.

Cores are shared: a group may have more workers than there are cores. Memory and GPUs are not.

Example:

    machine = Machine.here()
    lease = machine.take("trainer", Needs(gpus=1.0), workers=2)         # or a ConfigError
    lease.devices                                                       # [("0",), ("1",)]
    machine.give_back(lease)
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from slime_core.errors import ConfigError
from slime_core.roles import Needs

DEVICES = "CUDA_VISIBLE_DEVICES"
"""The variable that says which GPUs a process sees."""


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """What a group has taken."""

    group: str
    """Its name."""
    memory: int
    """Bytes."""
    gpus: Sequence[Mapping[str, float]]
    """How much of which GPU, of each worker."""

    @property
    def devices(self) -> list[tuple[str, ...]]:
        """The GPUs of each worker."""
        return [tuple(share) for share in self.gpus]


class Machine:
    """What one machine has, and which group has taken what: cores, memory and GPUs."""

    def __init__(self, cores: int, memory: int, gpus: Sequence[str]) -> None:
        """Nothing of it is taken; memory in bytes, GPUs by name."""
        self._cores, self._memory = cores, memory
        self._free = dict.fromkeys(gpus, 1.0)
        self._leases: list[Lease] = []

    @classmethod
    def here(cls) -> Self:
        """This machine, as far as this process may use it."""
        return cls(_cores(), _memory(), _gpus())

    def __str__(self) -> str:
        gpus = f"GPUs {', '.join(self._free)}" if self._free else "no GPU"
        return f"{self._cores} core{'' if self._cores == 1 else 's'}, {self._memory / 2**30:.1f} GiB of memory, {gpus}"

    def take(self, group: str, needs: Needs, workers: int) -> Lease:
        """Take what the workers of a group need.

        Raises:
            ConfigError: there is not so much of it, or not any more.
        """
        if why := self._wants(needs, workers):
            raise self._refusal(group, needs, workers, why)
        shares: list[Mapping[str, float]] = []
        for _ in range(workers):
            share = self._gpus_for(needs.gpus)
            if share is None:
                for each in shares:
                    self._return(each)
                raise self._refusal(group, needs, workers, "not so many GPUs are free")
            for name, part in share.items():
                self._free[name] -= part
            shares.append(share)
        lease = Lease(group, (needs.memory or 0) * workers, shares)
        self._leases.append(lease)
        return lease

    def give_back(self, lease: Lease) -> None:
        """A group needs nothing any more."""
        self._leases.remove(lease)
        for share in lease.gpus:
            self._return(share)

    def _wants(self, needs: Needs, workers: int) -> str:
        """What there is too little of, in words."""
        taken = sum(lease.memory for lease in self._leases)
        if needs.custom:
            return f"it has nothing called {', '.join(sorted(needs.custom))}"
        if needs.cpus > self._cores:
            return "a worker cannot have more cores than there are"
        if needs.memory is not None and needs.memory * workers > self._memory - taken:
            return f"{taken / 2**30:.1f} GiB of it are taken" if taken else "that is more memory than there is"
        return ""

    def _gpus_for(self, wanted: float) -> dict[str, float] | None:
        """Which GPUs one worker gets, and how much of each."""
        part = min(wanted, 1.0)
        fitting = [name for name, free in self._free.items() if free >= part - 1e-9]
        count = math.ceil(wanted)
        return dict.fromkeys(fitting[:count], part) if len(fitting) >= count else None

    def _return(self, share: Mapping[str, float]) -> None:
        for name, part in share.items():
            self._free[name] += part

    def _refusal(self, group: str, needs: Needs, workers: int, why: str) -> ConfigError:
        names = ", ".join(lease.group for lease in self._leases)
        taken = f"; {names} took theirs before" if names else ""
        each = f"{workers} workers, each with {needs}" if workers > 1 else str(needs)
        return ConfigError(
            f"group {group!r} needs {each}. This machine has {self}{taken}: {why}. Ask for less, or choose a launcher "
            "of a cluster that has it"
        )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> int:
    """Bytes of main memory, or of it what the container may use."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        return min(physical, int(Path("/sys/fs/cgroup/memory.max").read_text("utf-8")))
    return physical


def _gpus() -> list[str]:
    """The GPUs that this process may use, by number or name."""
    given = os.environ.get(DEVICES)
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip() not in ("", "-1", "NoDevFiles")]
    found = [each for each in Path("/dev").iterdir() if re.fullmatch(r"nvidia\d+", each.name)]
    return [str(number) for number in range(len(found))]
