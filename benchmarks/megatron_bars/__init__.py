"""The parts of `benchmarks/megatron_trainer.py`, one module each."""
