"""Without torch, tests that start a server on the CPU or compare with Hugging Face are skipped.

Without the marker `server`, files whose tests all need a server are skipped too: importing transformers takes seconds.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

TORCH = [
    "test_example_on_servers.py",
    "test_collective.py",
    "test_on_a_server.py",
    "test_on_cpu.py",
    "test_publication_on_a_server.py",
    "test_replay_on_a_server.py",
    "test_smoke_on_a_server.py",
    "test_weights.py",
]
collect_ignore = [] if find_spec("torch") else TORCH
ON_SERVERS = ("*_on_a_server.py", "*_on_servers.py")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip a file of tests that would all be deselected."""
    unwanted = "not server" in config.getoption("markexpr")
    return True if unwanted and any(map(collection_path.match, ON_SERVERS)) else None
