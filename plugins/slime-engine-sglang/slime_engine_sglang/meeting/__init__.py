"""Transports by which the trainer's first rank and all servers meet for each version: `distributed` and `tensor`.

`distributed` and `tensor` open the channels, `sender` is what rank 0's two ends have in common (`broadcasting`,
`handing`: the only ones with torch), `receiving` is an engine's end, and `wire` is what they say to each other.
"""
