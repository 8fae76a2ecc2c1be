"""Migrate: a run file from a launch script of slime, which is read and never run.

`script` reads the shell, `command` finds the training in it, `carry` says what each flag is here, `report` tells it.
"""
