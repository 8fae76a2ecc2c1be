"""The generator `verifiers` against the contract kit: long, since each start is a process that imports the library."""

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from slime_testing import GeneratorContract

pytest.importorskip("verifiers.envs", reason="needs the extra `verifiers`")
pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

FILE = f"{Path(__file__).parent}/some_environments.py"


@pytest.fixture(autouse=True)
def left_to_the_collector() -> Iterator[None]:
    """A check that cancels a start ends its loop while a process is being made, whose pipes asyncio does not close."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


class TestVerifiers(GeneratorContract):
    choice = "slime-agent-openai/verifiers"
    settings = {"environment": f"{FILE}:load_three_turns", "workers": 1}  # noqa: RUF012  # the kit's own way
    answers = ("one", "two", "three")
