"""RouterHost: the worker that a launcher starts for a router: it runs it as a process below itself.

The two live and die together, as a server and its `ServerHost` do.
"""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence

from slime_core.errors import ConfigError
from slime_core.processes import free_port
from slime_core.roles import Place
from slime_engine_sglang.host import OTHER_PYTHONS, die_with_parent, kept_port


class RouterHost:
    """Owns one router; its output is the worker's."""

    def __init__(self, rank: int, size: int, *, command: Sequence[str], place: Place) -> None:
        """Start it; it is not ready yet.

        Args:
            rank: 0, as all have.
            size: 1.
            command: the command line, to which host and ports are added.
            place: where this is.

        Raises:
            ConfigError: the command is not there.
        """
        if shutil.which(command[0]) is None:
            raise ConfigError(
                f"there is no {command[0]} to start a router with: [engine.sglang.router] python names it"
            )
        self._kept = kept_port(place.address, place.port)
        port = self._kept.getsockname()[1]
        self._url = f"http://{place.address}:{port}"
        ports = ["--port", str(port), "--prometheus-port", str(free_port(place.address))]
        inherited = {name: value for name, value in os.environ.items() if name not in OTHER_PYTHONS}
        self._process = subprocess.Popen(
            [*command, "--host", place.address, *ports],
            env=dict(os.environ) if command[0] == sys.executable else inherited,
            stdin=subprocess.DEVNULL,
            preexec_fn=die_with_parent,
        )
        self._closing = threading.Event()
        threading.Thread(target=self._watch, name="router", daemon=True).start()

    def address(self) -> tuple[str, int]:
        """The router's URL and its process id."""
        return self._url, self._process.pid

    def close(self) -> None:
        """End it."""
        self._closing.set()
        self._process.kill()
        self._process.wait()
        self._kept.close()

    def _watch(self) -> None:
        code = self._process.wait()
        if not self._closing.is_set():
            print(f"the router, process {self._process.pid}, ended with code {code}", flush=True)  # noqa: T201  # for the log
            os._exit(1)
