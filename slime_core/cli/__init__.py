"""The command line: `slime …`, one module a command, loaded when it is called.

Other packages add commands through the entry-point group `slime.commands`. Exit codes are those of docs/formats.md.
"""

from slime_core.cli.main import Commands, LazyGroup, main, run_cli

__all__ = [
    "Commands",
    "LazyGroup",
    "main",
    "run_cli",
]
