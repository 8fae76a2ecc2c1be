"""`slime agent work URL AGENT`: a worker of a fleet: takes tasks from a run that serves, and runs an agent for each.

It needs this package and what the agent imports: no model, no torch. Agents run in processes of their own, as in
`slime train`.
"""

import asyncio
import signal
from collections import Counter

import click

from slime_agent_openai.commands.serve import require_token
from slime_agent_openai.fleet_client import FleetClient, told
from slime_agent_openai.reference import check
from slime_agent_openai.workers import Workers
from slime_core.errors import ConfigError


@click.command()
@click.argument("url")
@click.argument("agent")
@click.option("--agents", type=click.IntRange(min=1), default=64, show_default=True, help="Agents at once.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Processes that run them.")
@click.option("--memory-mb", type=click.IntRange(min=64), default=4096, show_default=True, help="MiB of each process.")
@click.option(
    "--patience-s", type=click.FloatRange(min=0), default=120.0, show_default=True, help="Seconds without an answer."
)
def work(url: str, agent: str, agents: int, workers: int, memory_mb: int, patience_s: float) -> None:
    """Run AGENT (./file.py:function) for the run that serves at URL, until that ends.

    The token of the fleet is in the variable SLIME_FLEET_TOKEN. A run that cannot be reached is tried again for
    --patience-s: it may be about to start, or to be resumed. Says when it has reached the run, and every half minute
    how many agents run and how they ended, if that has changed.
    """
    token = require_token()
    try:
        check(agent)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    runs = Workers(agent, workers=workers, agents_per_worker=-(-agents // workers), memory_mb=memory_mb)
    client = FleetClient(url, token, patience_s=patience_s, tell=click.echo)
    counts = asyncio.run(_worked(runs, client, agents, agent))
    click.echo(f"the run has ended: {told(counts) or 'nothing to do'}")


async def _worked(runs: Workers, client: FleetClient, agents: int, agent: str) -> Counter[str]:
    """Work until the run ends; SIGTERM is Ctrl-C: what is under way goes to another worker."""
    task = asyncio.current_task()
    assert task is not None, "asyncio.run made it"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await runs.start()
    click.echo(f"{agent} is imported, and up to {agents} of it will run at once")
    try:
        return await client.work(runs, agents)
    finally:
        await runs.close()
