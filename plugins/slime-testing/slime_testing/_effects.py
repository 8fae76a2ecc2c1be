"""EffectLog: lists what code does outside its own process (files, connections), from Python's audit events.

Example:

    with (log := EffectLog()):
        import a_plugin
    log.effects                             # ["wrote /home/me/.cache/state.json", "opened a connection"]
"""

import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Self

HEAVY = ("jax", "megatron", "numpy", "ray", "sglang", "tensorflow", "torch", "transformers", "vllm")
"""What listing plugins must not import."""
_NAMED = {
    "os.fork": "forked",
    "os.forkpty": "forked",
    "os.posix_spawn": "started a process",
    "os.spawn": "started a process",
    "os.system": "started a process",
    "subprocess.Popen": "started a process",
    "socket.connect": "opened a connection",
    "socket.getaddrinfo": "looked a host up",
    "socket.bind": "opened a port",
    "os.mkdir": "made a directory",
    "os.remove": "removed a file",
    "os.rename": "renamed a file",
    "os.rmdir": "removed a directory",
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class EffectLog:
    """Lists effects while it is entered. For short-lived processes only: an audit hook cannot be removed again."""

    def __init__(self, note: Callable[[str], None] = lambda effect: None) -> None:
        """Tell `note` of each effect when it is there first."""
        self.effects: list[str] = []
        self._note = note
        self._on = False
        sys.addaudithook(self._heard)

    def __enter__(self) -> Self:
        self._on = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._on = False

    def _heard(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self._on:
            return
        effect = _NAMED.get(event)
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITING and path != os.devnull:
                effect = f"wrote {path}"
        if effect and effect not in self.effects:
            self.effects.append(effect)
            self._note(effect)
