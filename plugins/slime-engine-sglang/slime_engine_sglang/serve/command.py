"""`slime engine serve --backend local|sglang MODEL`: a server of SGLang's wire, until Ctrl-C.

slime engine serve models/tiny --port 30000
curl http://127.0.0.1:30000/generate -H content-type:application/json -d '{"text": "2+3="}'
"""

import socket
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, cast

import click

from slime_core.errors import ConfigError
from slime_core.sample import Json


@click.group()
def engine() -> None:
    """Engines without a run: serve a model over HTTP."""


@engine.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "--backend",
    type=click.Choice(["local", "sglang"]),
    default="local",
    show_default=True,
    help="What computes: plain torch, or SGLang.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", type=click.IntRange(1, 65535), default=30000, show_default=True, help="Port to listen at.")
@click.option(
    "--set", "given", multiple=True, metavar="KEY=VALUE", help="A setting of the engine, as workers=1; repeatable."
)
@click.option("--bf16", is_flag=True, help="Compute in bf16.")
def serve(
    model: Path, backend: Literal["local", "sglang"], host: str, port: int, given: Sequence[str], bf16: bool
) -> int:
    """Serve MODEL, a model directory, by SGLang's HTTP: /generate, /abort_request, /server_info and so on.

    Ctrl-C ends it. Whoever reaches the address may use it and have it read files of this machine: there is no key.

    \b
    slime engine serve models/tiny
    slime engine serve models/tiny --backend sglang --set python=.venv-sglang/bin/python --set server.log_level=info
    """  # noqa: D301  # \b keeps click from filling the lines below it
    from slime_core.run import Serving

    serving = Serving.of(model, backend, settings_of(given), bf16=bf16)
    check_free(host, port)
    if backend == "local":
        from slime_engine_sglang.serve.backends import serve_local

        return serve_local(serving, host, port)
    from slime_engine_sglang.serve.backends import serve_sglang

    return serve_sglang(serving, host, port)


def settings_of(given: Sequence[str]) -> Mapping[str, Json]:
    """Settings of an engine as they are typed, KEY=VALUE or TABLE.KEY=VALUE each; the last one of a key counts."""
    settings: dict[str, Json] = {}
    for each in given:
        key, equals, text = each.partition("=")
        if not equals or not key:
            raise click.UsageError(f"--set {each}: expected KEY=VALUE, as in workers=1")
        *tables, name = key.replace("-", "_").split(".")
        inner = settings
        for table in tables:
            found = inner.setdefault(table, {})
            if not isinstance(found, dict):
                raise click.UsageError(f"--set {each}: {table} is given as {found!r} before, and as a table here")
            inner = found
        inner[name] = _value(text)
    return settings


def _value(text: str) -> Json:
    """A number, a truth value or a list as TOML writes them; else the text itself."""
    try:
        return cast(Json, tomllib.loads(f"value = {text}")["value"])
    except (ValueError, RecursionError):
        return text


def check_free(host: str, port: int) -> None:
    """See that one can listen there, before anything is started. Raises ConfigError: one cannot."""
    try:
        [(family, *_), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        with socket.socket(family, socket.SOCK_STREAM) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(
            f"cannot listen at {host}:{port}: {why}; give another --port, or the --host of this machine"
        ) from None
