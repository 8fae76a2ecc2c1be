"""The command line: `slime …`, one module a command, loaded when it is called.

Other packages add commands through the entry-point group `slime.commands`. docs/formats.md lists the exit codes.
"""

from slime_core.cli.main import Commands, LazyGroup, main, run_cli

__all__ = [
    "Commands",
    "LazyGroup",
    "main",
    "run_cli",
]
