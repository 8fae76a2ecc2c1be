"""Isolation: runs what a plugin computes where it can be timed, capped and killed."""
