"""`slime agent serve RUN.toml`: train with a fleet: agents that run elsewhere, ask for work, and ask this run's model.

It is `slime train` with the generator `agent_fleet`; what the run file says of `agent` or `agent_cli` holds for it.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from slime_agent_openai.settings import CommonSettings
from slime_core.cli import run_cli
from slime_core.config import read_run_file
from slime_core.errors import ConfigError

TOKEN = "SLIME_FLEET_TOKEN"
"""Variable that has the fleet's token."""
KINDS = ("agent_fleet", "agent", "agent_cli")
"""Generators whose settings a fleet takes; the first that a run file has."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("run_file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--host", help="Address to bind.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(1, 65535), default=8700, show_default=True, help="Port to bind.")
@click.option("--public-url", help="What workers reach it by; needed where --host is not a loopback address.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def serve(run_file: Path, host: str | None, port: int, public_url: str | None, flags: Sequence[str]) -> int:
    """Train as RUN_FILE says, with agents that run elsewhere and ask for work. FLAGS are those of slime train.

    \b
    export SLIME_FLEET_TOKEN=$(openssl rand -hex 16)
    slime agent serve run.toml --host 0.0.0.0 --public-url http://10.0.0.5:8700
    slime agent work http://10.0.0.5:8700 ./agents.py:solve     # elsewhere, with the same variable
    """  # noqa: D301  # \b keeps click from filling the lines below it
    require_token()
    own = {"host": host, "port": port, "public_url": public_url}
    given = {key: str(value) for key, value in own.items() if value is not None}
    settings = _settings(run_file) | {"token": f"$env:{TOKEN}"} | given
    options = [part for key, value in settings.items() for part in (f"--generator.agent_fleet.{key}", value)]
    return run_cli(["train", str(run_file), "--generator", "agent_fleet", *options, *flags])


def require_token() -> str:
    """What workers of the fleet show.

    Raises:
        ConfigError: the environment has none.
    """
    if token := os.environ.get(TOKEN):
        return token
    raise ConfigError(
        f"no {TOKEN} in the environment. It is what workers show to the run that serves, any text that nobody guesses, "
        f"the same on both sides: export {TOKEN}=$(openssl rand -hex 16)"
    )


def _settings(run_file: Path) -> dict[str, str]:
    """What a run file says of agents, and a fleet takes, as flags give it."""
    section = read_run_file(run_file).get("generator", {})
    tables = [section.get(kind) for kind in KINDS] if isinstance(section, dict) else []
    found: Mapping[str, object] = next((each for each in tables if isinstance(each, dict)), {})
    return {key: _literal(value) for key, value in found.items() if key in CommonSettings.model_fields}


def _literal(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
