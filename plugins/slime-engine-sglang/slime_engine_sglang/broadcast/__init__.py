"""The transport `distributed`: the trainer's first rank broadcasts weights to a process group of all servers.

`channel` opens it, `sender` is rank 0's end and the only one with torch, `receiving` is an engine's, and `wire` is what
the two say to each other meanwhile.
"""
