"""Isolation: where a plugin's calls run, and the limits that they run under.

Example:

    RewardSpec("prove", Prover, isolation=Isolation.PROCESS, timeout_s=10.0, memory_mb=2048)
"""

import enum
import functools
import inspect
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import ClassVar, get_type_hints

from slime_core.roles._spec import RoleT, Spec
from slime_core.sample import Sample

SAMPLE_FIELDS = frozenset(item.name for item in fields(Sample))
LIGHT_FIELDS = (
    "group_index",
    "index",
    "rollout_id",
    "source",
    "prompt",
    "response",
    "response_length",
    "label",
    "status",
    "metadata",
    "custom_rm_path",
)
"""Sample fields that travel to a worker process unless a spec names its own: no tokens, no log-probs."""
LEAST_MEMORY_MB = 64
"""Mebibytes under which a worker process cannot even import its plugin."""


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
    """Seconds after which a call is given up, its wait for a free place not counted; retryable."""
    isolation: Isolation | None = None
    """Where calls run; None: `async def` on the loop, `def` in a process."""
    max_concurrency: int | None = None
    """Calls at once; None: without limit on the loop, one a core in processes, 32 in threads."""
    memory_mb: int = 1024
    """Mebibytes that one worker process may use, the processes that it starts included."""
    fields: Collection[str] = LIGHT_FIELDS
    """Fields of the sample that it reads; in a thread or a process, the others are not there."""

    def __post_init__(self) -> None:
        super().__post_init__()
        what = f"{type(self).__name__} {self.name!r}"
        isolation: object = self.isolation
        if not (isolation is None or isinstance(isolation, Isolation)):
            choices = ", ".join(str(each) for each in Isolation)
            raise TypeError(f"{what}: isolation is {isolation!r}; expected one of {choices}, or None")
        if not self.timeout_s > 0:
            raise ValueError(f"{what}: timeout_s = {self.timeout_s}; expected seconds, more than 0")
        if self.max_concurrency is not None and self.max_concurrency < 1:
            raise ValueError(f"{what}: max_concurrency = {self.max_concurrency}; expected 1 or more, or None")
        if self.memory_mb < LEAST_MEMORY_MB:
            raise ValueError(f"{what}: memory_mb = {self.memory_mb}; a worker needs at least {LEAST_MEMORY_MB}")
        given: object = self.fields
        if isinstance(given, str) or (unknown := sorted(set(self.fields) - SAMPLE_FIELDS)):
            named = repr(given) if isinstance(given, str) else ", ".join(unknown)
            raise ValueError(f"{what}: fields: a Sample has no {named}; it has {', '.join(sorted(SAMPLE_FIELDS))}")


def is_async(function: object) -> bool:
    """Whether calling this gives a coroutine: an `async def`, or an object or a class with `async def __call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        return inspect.iscoroutinefunction(inspect.unwrap(function.__call__))
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def declared_isolation(spec: CallSpec[object]) -> Isolation | None:
    """Where calls will run, as far as can be told without calling the factory; None: as its object turns out.

    A spec says so itself, wraps a function or a class of known kind, or has a factory with a return type.
    """
    if spec.isolation is not None:
        return spec.isolation
    made: object = inspect.unwrap(spec.factory)
    if made is spec.factory:
        try:
            made = get_type_hints(spec.factory).get("return")
        except (NameError, TypeError):
            return None
        if not isinstance(made, type) or "__call__" not in dir(made) or made is object:
            return None
    return Isolation.LOOP if is_async(made) else Isolation.PROCESS


def describe_isolation(spec: CallSpec[object]) -> str:
    """How calls are isolated, in a few words: "loop, unprotected", "process, 30 s, 1024 MiB"."""
    limit = f"{spec.timeout_s:g} s"
    texts = {
        Isolation.LOOP: "loop, unprotected",
        Isolation.THREAD: f"thread, {limit}",
        Isolation.PROCESS: f"process, {limit}, {spec.memory_mb} MiB",
    }
    isolation = declared_isolation(spec)
    if isolation is not None:
        return texts[isolation]
    return f"{texts[Isolation.LOOP]} if it is async def; else {texts[Isolation.PROCESS]}"
