"""`slime view RUN …`: run folders in a browser, live. `slime report RUN …`: the same in a self-contained file."""

import ipaddress
import os
import secrets
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from slime_core.errors import ConfigError, RunFolderError
from slime_core.outputs import nofollow, refuse_occupied
from slime_view.run_reader import write_report

TOKEN = "SLIME_VIEW_TOKEN"
"""Environment variable with the token, for a link that stays the same."""
PORT = 8650


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"Port to listen on; 0 picks a free one.  [default: {PORT}, or a free one]",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation if other machines can reach --host.")
def view(runs: Sequence[Path], host: str, port: int | None, yes: bool) -> None:
    """Open the run folders RUNS in a browser: live curves in shared axes, and every sample.

    \b
    slime view runs/first
    slime view runs/first runs/second

    It prints the address with a token, which the browser keeps. It changes nothing in the folders. For a remote
    machine, prefer ssh -L 8650:127.0.0.1:8650 MACHINE to --host, and open the same link here. Set SLIME_VIEW_TOKEN in
    the environment to keep the same link.
    """  # noqa: D301  # \b keeps click from filling the lines below it
    if not _is_loopback(host) and not yes:
        _ask(host)
    from slime_view.app import serve
    from slime_view.runs import OpenRun

    opened = OpenRun.all(runs)
    with _bound(host, port) as listening:
        serve(opened, listening, os.environ.get(TOKEN) or secrets.token_urlsafe(18))


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--html", "as_html", is_flag=True, help="Write one self-contained page instead of the report's files.")
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="Approximate number of samples of each run.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write.  [default: RUN/report/view.html]",
)
def report(runs: Sequence[Path], as_html: bool, samples: int, out: Path | None) -> None:
    """Rewrite the reports of the run folders RUNS; with --html write one self-contained page for all of them.

    \b
    slime report runs/first
    slime report runs/first runs/second --html --out both.html

    The page has the views of slime view, with all metrics and a part of the samples: whole groups, evenly over the
    run. It needs no server, no other file and no network.
    """  # noqa: D301  # \b keeps click from filling the lines below it
    if out is not None:
        refuse_occupied(f"--out {out}", out)
    if not as_html and out is None:
        for run in runs:
            click.echo(write_report(run).report)
        return
    from slime_view.report import report_page
    from slime_view.runs import OpenRun

    opened = OpenRun.all(runs)
    for each in opened:
        while each.refresh():
            pass
    path = out or nofollow(runs[0] / "report" / "view.html", 2)
    page = report_page(opened, samples)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, "utf-8")
    except OSError as error:
        raise RunFolderError(f"cannot write {path}: {error.strerror}. Name another file: --out FILE") from None
    click.echo(path)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _ask(host: str) -> None:
    """Let the user confirm that other machines may connect.

    Raises:
        ConfigError: standard input is no terminal.
    """
    warning = (
        f"other machines can reach {host}: with the link, any user reads every prompt and sample, without encryption"
    )
    if not sys.stdin.isatty():
        raise ConfigError(f"{warning}. Pass --yes to accept this, or leave --host out and use ssh -L")
    click.confirm(f"{warning}. Continue?", abort=True)


def _bound(host: str, port: int | None) -> socket.socket:
    """A socket that listens on an address.

    Raises:
        ConfigError: it cannot be bound.
    """
    wanted = PORT if port is None else port
    try:
        family, _, _, _, address = socket.getaddrinfo(host, wanted, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        if port is None:
            return _bound(host, 0)
        raise ConfigError(f"cannot listen on {host}, port {port}: {error}. Give another --port, or --host") from None
