"""The parts of `benchmarks/ray_launcher.py`, one module each."""
