"""`slime agent serve RUN.toml` trains with a fleet; `slime agent work URL AGENT` is one of its workers.

`serve` is `slime train` with the generator `agent_fleet`. It reuses the run file's settings for `agent` or `agent_cli`.
`work` needs this package and the agent's own imports, but no model and no torch.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from slime_agent_openai.fleet_client import FleetClient, outcomes_line
from slime_agent_openai.reference import check
from slime_agent_openai.settings import CommonSettings
from slime_agent_openai.workers import Workers
from slime_core.cli import run_cli
from slime_core.config import read_run_file
from slime_core.errors import ConfigError

TOKEN = "SLIME_FLEET_TOKEN"  # Environment variable with the fleet's token
KINDS = ("agent_fleet", "agent", "agent_cli")  # A fleet uses the first one that the run file has


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("run_file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--host", help="Address to bind.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(1, 65535), default=8700, show_default=True, help="Port to bind.")
@click.option("--public-url", help="URL at which workers reach it. Required unless --host is a loopback address.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def serve(run_file: Path, host: str | None, port: int, public_url: str | None, flags: Sequence[str]) -> int:
    """Train with RUN_FILE and agents on other machines, which fetch tasks over HTTP. Takes all FLAGS of slime train.

    \b
    export SLIME_FLEET_TOKEN=$(openssl rand -hex 16)
    slime agent serve run.toml --host 0.0.0.0 --public-url http://10.0.0.5:8700
    slime agent work http://10.0.0.5:8700 ./agents.py:solve     # on the other machines, with the same token
    """  # noqa: D301  # \b keeps click from filling the lines below it
    require_token()
    own = {"host": host, "port": port, "public_url": public_url}
    given = {key: str(value) for key, value in own.items() if value is not None}
    settings = _settings(run_file) | {"token": f"$env:{TOKEN}"} | given
    options = [part for key, value in settings.items() for part in (f"--generator.agent_fleet.{key}", value)]
    return run_cli(["train", str(run_file), "--generator", "agent_fleet", *options, *flags])


def require_token() -> str:
    """The fleet's token from the environment. Raises ConfigError if it is not set."""
    if token := os.environ.get(TOKEN):
        return token
    raise ConfigError(
        f"the environment variable {TOKEN} is not set. It is a shared secret: use the same value for slime agent serve "
        f"and for every worker. Create one with: export {TOKEN}=$(openssl rand -hex 16)"
    )


def _settings(run_file: Path) -> dict[str, str]:
    section = read_run_file(run_file).get("generator", {})
    tables = [section.get(kind) for kind in KINDS] if isinstance(section, dict) else []
    table: Mapping[str, object] = next((each for each in tables if isinstance(each, dict)), {})
    return {key: _literal(value) for key, value in table.items() if key in CommonSettings.model_fields}


def _literal(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@click.command()
@click.argument("url")
@click.argument("agent")
@click.option("--agents", type=click.IntRange(min=1), default=64, show_default=True, help="Most concurrent agents.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Processes that run agents.")
@click.option("--memory-mb", type=click.IntRange(min=64), default=4096, show_default=True, help="MiB per process.")
@click.option(
    "--patience-s", type=click.FloatRange(min=0), default=120.0, show_default=True, help="Seconds to retry the run."
)
def work(url: str, agent: str, agents: int, workers: int, memory_mb: int, patience_s: float) -> None:
    """Run AGENT (./file.py:function) for the run that is served at URL, until that run ends.

    Set the environment variable SLIME_FLEET_TOKEN to the fleet's token. An unreachable run is retried for --patience-s
    seconds, since it may be starting or resuming. Prints a line on connection, and a summary of results at the end.
    """
    token = require_token()
    try:
        check(agent)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    pool = Workers(agent, workers=workers, agents_per_worker=-(-agents // workers), memory_mb=memory_mb)
    client = FleetClient(url, token, patience_s=patience_s, tell=click.echo)
    counts = asyncio.run(_work(pool, client, agents, agent))
    click.echo(f"the run has ended: {outcomes_line(counts) or 'no tasks received'}")


async def _work(pool: Workers, client: FleetClient, agents: int, agent: str) -> Counter[str]:
    """Work until the run ends. SIGTERM acts like Ctrl-C: unfinished tasks go to another worker."""
    task = asyncio.current_task()
    assert task is not None, "asyncio.run creates a task"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await pool.start()
    click.echo(f"imported {agent}; up to {agents} agents run at once")
    try:
        return await client.work(pool, agents)
    finally:
        await pool.close()
