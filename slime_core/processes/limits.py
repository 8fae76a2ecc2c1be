"""Memory limit of a worker process, which it sets itself before it runs code of a plugin or a model."""

import resource
from contextlib import suppress

_MIB = 1 << 20


def limit_memory(memory_mb: int) -> None:
    """Cap what this process can allocate, so that it meets a MemoryError.

    RLIMIT_DATA counts private writable memory; RLIMIT_AS would count what libraries only map or reserve as well.
    A system that refuses the limit (macOS) leaves the process without it.
    """
    for limit in (resource.RLIMIT_DATA, resource.RLIMIT_CORE):
        wanted = memory_mb * _MIB if limit == resource.RLIMIT_DATA else 0
        _, hard = resource.getrlimit(limit)
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(limit, (value, value))
