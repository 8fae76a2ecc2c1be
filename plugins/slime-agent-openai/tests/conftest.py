"""What the tests of agents share: a real tokenizer with a chat template, and an engine that numbers its answers."""

import pytest
from chat import load_chat
from talker import Talker

from slime_agent_openai.bridge import Bridge
from slime_core.data import HfTokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> HfTokenizer:
    return load_chat(tmp_path_factory.mktemp("chatml"))


@pytest.fixture(scope="module")
def bridge(tokenizer: HfTokenizer) -> Bridge:
    return Bridge(tokenizer)


@pytest.fixture
def talker(tokenizer: HfTokenizer) -> Talker:
    return Talker(tokenizer, lambda text, turn: f"Answer {turn}")
