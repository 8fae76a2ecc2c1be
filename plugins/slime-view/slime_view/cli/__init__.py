"""The commands that read a run folder: samples, why, diff, trace, ledger and checkpoints."""
