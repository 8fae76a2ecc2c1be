"""Switches: flags of settings that are true or false, in every way that people type them.

    --bf16    --no-bf16    --bf16 true    --bf16 false    --bf16=True

Example:

    plain_switches(["--bf16", "false", "run.toml"], {"--bf16": "--no-bf16"})        # ["--no-bf16", "run.toml"]
"""

from collections import deque
from collections.abc import Iterable, Mapping

from slime_core.errors import ConfigError


def plain_switches(arguments: Iterable[str], switches: Mapping[str, str]) -> list[str]:
    """The arguments with every switch as one flag of its own.

    Args:
        arguments: as they are typed.
        switches: the flag that says no, by the one that says yes.

    Raises:
        ConfigError: a switch is given what is neither true nor false.
    """
    plain: list[str] = []
    remaining = deque(arguments)
    while remaining:
        argument = remaining.popleft()
        flag, equals, value = argument.partition("=")
        if flag not in switches:
            plain.append(argument)
            continue
        if not equals:  # what follows is its value only if it can be no other thing, such as the run file
            value = remaining.popleft() if remaining and remaining[0].lower() in ("true", "false") else "true"
        if value.lower() not in ("true", "false"):
            raise ConfigError(f"{argument}: it is true or false, write {flag} or {switches[flag]}")
        plain.append(flag if value.lower() == "true" else switches[flag])
    return plain
