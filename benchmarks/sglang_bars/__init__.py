"""The bars of slime-engine-sglang, a module each; `benchmarks/sglang_engine.py` runs them."""
