import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import free_port

from slime_testing import GeneratorContract, PluginPackageContract

# A check that cancels ends its loop, with what is being made then: a process, or a connection of the fleet's worker,
# which asks all the time. What a gateway leaves open is tested where loops go on (test_gateway.py).
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
AGENTS = f"{Path(__file__).parent}/contract_agents.py"


@pytest.fixture(scope="module", autouse=True)
def left_to_the_collector() -> Iterator[None]:
    """Collect what the checks' loops have left while it is known whose it is."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


PORT, TOKEN = free_port(), "a token for the contract"


@pytest.fixture(scope="module")
def fleet() -> Iterator[None]:
    """A worker, which asks wherever one of the contract's generators has been started."""
    command = [sys.executable, f"{Path(__file__).parent}/fleet_worker.py", f"http://127.0.0.1:{PORT}", TOKEN]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with pytest.MonkeyPatch.context() as patch, subprocess.Popen(command, env=env) as worker:
        patch.setenv("SLIME_CONTRACT_TOKEN", TOKEN)
        yield
        worker.kill()


class TestPackage(PluginPackageContract):
    dist = "slime-agent-openai"


class TestAgent(GeneratorContract):
    choice = "slime-agent-openai/agent"
    settings = {"agent": f"{AGENTS}:asks_thrice", "workers": 1}  # noqa: RUF012  # the kit's own way
    answers = ("one", "two", "three")


@pytest.mark.long  # test_cli_agent.py shows what commands add
class TestAgentCli(GeneratorContract):
    choice = "slime-agent-openai/agent_cli"
    settings = {"command": ["sh", f"{AGENTS.removesuffix('.py')}.sh"]}  # noqa: RUF012


@pytest.mark.long  # TestAgent runs the same gateway; test_fleet.py shows what a fleet adds
@pytest.mark.usefixtures("fleet")
class TestAgentFleet(GeneratorContract):
    choice = "slime-agent-openai/agent_fleet"
    settings = {"token": "$env:SLIME_CONTRACT_TOKEN", "port": PORT, "lease_s": 5.0}  # noqa: RUF012
    answers = ("one", "two", "three")
