"""Converts a slime launch script to a run file; the script is read and never run.

`script` reads the shell and finds the training command, `translate` translates each flag, `migrate` reports the result.
"""
