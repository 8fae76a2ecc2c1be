"""What `benchmarks/agents.py` measures, a bar a module."""
