"""The backend `sglang`: SGLang's own server, started as a run starts it, in the foreground."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import cast
from urllib.error import URLError
from urllib.request import urlopen

import click

from slime_core.data import HfTokenizer
from slime_core.errors import ConfigError, WorkerError
from slime_core.run import Serving
from slime_engine_sglang.command import server_command
from slime_engine_sglang.host import OTHER_PYTHONS, die_with_parent
from slime_engine_sglang.settings import SglangSettings

POLL_S = 0.25
READY = "/health_generate"
"""Answers when the model does, in every release."""


def serve_sglang(serving: Serving, host: str, port: int) -> int:
    """Run the server until Ctrl-C, or its end.

    Raises:
        ConfigError: settings are for servers that run already, or for what stands before them.
        WorkerError: it ended by itself.
    """
    settings = cast(SglangSettings, serving.settings)
    for key in ("urls", "router"):
        if getattr(settings, key):
            raise ConfigError(f"--set {key}=...: this starts one server, and nothing before it; leave it out")
    scratch = Path(tempfile.mkdtemp(prefix="sglang-"))  # SGLang leaves sockets, whose paths have to be short
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    server: subprocess.Popen[bytes] | None = None
    try:
        setup = serving.engine_setup(HfTokenizer.load(serving.hf_checkpoint), serving.launcher(scratch), scratch)
        command = [*server_command(settings, setup), "--host", host, "--port", str(port)]
        left_out = () if command[0] == sys.executable else OTHER_PYTHONS
        environment = {name: value for name, value in os.environ.items() if name not in left_out}
        server = subprocess.Popen(
            command,
            env={**environment, "TMPDIR": str(scratch)},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        click.echo(f"SGLang starts, process {server.pid}: it takes from twenty seconds to minutes", err=True)
        _until_ready(server, f"http://{host}:{port}", settings.start_timeout_s)
        click.echo(f"serving {serving.hf_checkpoint} at http://{host}:{port}, by SGLang; Ctrl-C ends it")
        raise WorkerError(f"the SGLang server ended with code {server.wait()}; its last lines are above")
    except KeyboardInterrupt:
        click.echo("ended", err=True)
        return 0
    finally:
        if server is not None:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()
        shutil.rmtree(scratch, ignore_errors=True)


def _until_ready(server: "subprocess.Popen[bytes]", url: str, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise WorkerError(f"the SGLang server ended with code {server.returncode} while it started; see above")
        with suppress(URLError, OSError), urlopen(url + READY, timeout=within_s) as reply:
            if reply.status == 200:
                return
        time.sleep(POLL_S)
    raise WorkerError(f"the SGLang server was not ready in {within_s:g} s; --set start_timeout_s=SECONDS gives it more")
