"""A worker of a fleet for the contract kit: one run after the other, as often as generators are started there.

python fleet_worker.py URL TOKEN
"""

import asyncio
import sys

from contract_agents import asks_thrice

from slime_agent_openai import fleet_client
from slime_agent_openai.errors import AgentError
from slime_agent_openai.task import Task, Verdict
from slime_core.errors import WorkerError


class Here:
    """Runs agents in threads of this process."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def run(self, task: Task, *, timeout_s: float) -> Verdict:
        try:
            await asyncio.to_thread(asks_thrice, task)
        except OSError as error:  # the gateway refused a request, or is gone
            raise AgentError(f"agent_{type(error).__name__}", str(error)) from None
        return None

    run_alone = run


async def main(url: str, token: str) -> None:
    """Until this process is ended."""
    fleet_client.AGAIN_S = 0.02
    while True:
        try:
            await fleet_client.FleetClient(url, token, patience_s=600.0).work(Here(), 20)
        except WorkerError:
            return
        await asyncio.sleep(fleet_client.AGAIN_S)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
