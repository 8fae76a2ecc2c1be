import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from slime_testing import GeneratorContract

# A check that cancels ends its loop, with what is being made then. What a gateway leaves open is tested where loops go
# on (test_gateway.py).
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
AGENTS = f"{Path(__file__).parent}/contract_agents.py"


@pytest.fixture(scope="module", autouse=True)
def left_to_the_collector() -> Iterator[None]:
    """Collect what the checks' loops have left while it is known whose it is."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


class TestAgent(GeneratorContract):
    choice = "slime-agent-openai/agent"
    settings = {"agent": f"{AGENTS}:asks_thrice", "workers": 1}  # noqa: RUF012  # the kit's own way
    answers = ("one", "two", "three")
