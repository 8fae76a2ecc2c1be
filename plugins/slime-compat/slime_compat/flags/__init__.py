"""slime's flags and their equivalents here: the same key, another key, nothing to write, or advice.

The tables are data: `slime.toml` and `megatron.toml`. Error hints, the reference page and `slime migrate` read them.
"""
