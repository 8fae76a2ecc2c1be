from typing import ClassVar

import pytest
from cloud import Cloud

from slime_testing import GeneratorContract


class TestAgentRemote(GeneratorContract):
    choice = "slime-agent-openai/agent_remote"
    settings: ClassVar[dict[str, object]] = {}
    answers = ("one", "two", "three")

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _lead_there(cls, cloud: Cloud) -> None:
        """They are the cloud's, whose port is known once it runs."""
        cls.settings = cloud.settings(rollout={"turns": 3})
