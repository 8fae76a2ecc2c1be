"""Where there is no torch, what starts a server on the CPU, and the comparison with Hugging Face, are left out."""

from importlib.util import find_spec

TORCH = [
    "test_example_on_servers.py",
    "test_meeting.py",
    "test_models_beside_on_servers.py",
    "test_on_a_server.py",
    "test_on_cpu.py",
    "test_publication_on_a_server.py",
    "test_replay_on_a_server.py",
    "test_serve.py",
    "test_serve_on_a_server.py",
    "test_smoke_on_a_server.py",
    "test_two_servers.py",
    "test_weights.py",
]
collect_ignore = [] if find_spec("torch") else TORCH
