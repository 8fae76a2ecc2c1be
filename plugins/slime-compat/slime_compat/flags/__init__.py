"""Flags: every flag of slime, and what it is here: the same, another key, nothing to write, or refused with what to do.

The tables are data, `slime.toml` and `megatron.toml`; hints, the reference page and `slime migrate` are made of them.
"""
