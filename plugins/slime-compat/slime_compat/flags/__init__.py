"""Flags: slime's flags and their equivalents here: the same key, another key, nothing to write, or refused with advice.

The tables are data, `slime.toml` and `megatron.toml`; hints, the reference page and `slime migrate` use them.
"""
