"""Writes a run file from a slime launch script, which is read and never run.

`script` reads the shell and finds the training command, `carry` translates each flag, `report` lists the outcome.
"""
