"""Wires: the protocols that agents speak; each reads a `Request`, and writes a `Reply` or its deltas."""
