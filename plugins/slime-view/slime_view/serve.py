"""Serve: the application on a socket, until Ctrl-C.

Example:

    serve(OpenRun.all([Path("runs/first")]), socket.create_server(("127.0.0.1", 8650)), token)
"""

import socket
from collections.abc import Sequence

import click
import uvicorn

from slime_view.app import make_app
from slime_view.runs import OpenRun

NAMES = ["127.0.0.1", "localhost", "[::1]"]


def serve(runs: Sequence[OpenRun], listening: socket.socket, token: str) -> None:
    """Print the address, and serve."""
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    names = [*NAMES, shown] if shown in NAMES else ["*"]
    app = make_app(runs, token, names, f"slime_view_{port}")
    click.echo(f"http://{shown}:{port}/?token={token}")
    click.echo(f"shows {', '.join(run.name for run in runs)}, and follows; Ctrl-C ends it", err=True)
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
    uvicorn.Server(config).run(sockets=[listening])
