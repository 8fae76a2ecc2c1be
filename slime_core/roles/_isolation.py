"""Isolation: where a plugin's calls run, and the limits that they run under.

Example:

    RewardSpec("prove", Prover, isolation=Isolation.PROCESS, timeout_s=10.0, memory_mb=2048)
"""

import enum
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from slime_core.roles._spec import RoleT, Spec

LIGHT_FIELDS = ("prompt", "response", "label", "metadata", "status", "index", "group_index")
"""Sample fields that travel to a worker process unless a spec names its own: no tokens, no log-probs."""


class Isolation(enum.Enum):
    """Where calls run."""

    LOOP = "loop"
    """On the event loop, unprotected: `async def` that awaits I/O and computes little."""
    THREAD = "thread"
    """In a thread: `def` that blocks on I/O. It is left behind at its time limit, never killed."""
    PROCESS = "process"
    """In a worker process that is killed and replaced at its time or memory limit; `def` without a word gets it."""


@dataclass(frozen=True)
class CallSpec(Spec[RoleT]):
    """Base of the roles whose calls can be isolated."""

    many: ClassVar[bool] = True

    timeout_s: float = 30.0
    """Seconds after which a call is given up; retryable."""
    isolation: Isolation | None = None
    """Where calls run; None: `async def` on the loop, `def` in a process."""
    max_concurrency: int | None = None
    """Calls at once; None: without limit on the loop, one a core in processes, 32 in threads."""
    memory_mb: int = 1024
    """Mebibytes that one worker process may use."""
    fields: Collection[str] = LIGHT_FIELDS
    """Fields of the sample that it reads; in a worker process, the others are not there."""
