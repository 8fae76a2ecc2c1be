"""The engine against the contract kit, on a real server with the kit's tiny model."""

import pytest
from servers import PYTHON, VARIABLE, needs_servers

from slime_engine_sglang.contract import SglangContract

NUM_GPUS = 0
pytestmark = [pytest.mark.server, pytest.mark.timeout(1200)]


class TestSglang(SglangContract):
    @pytest.fixture(autouse=True)
    def _servers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        needs_servers()
        monkeypatch.setenv(VARIABLE, str(PYTHON))
