"""The engine against the contract kit on the kit's fake server, which has SGLang's HTTP API but no weights."""

from collections.abc import Iterator

import pytest
from fake_server_engines import FakeServerContract

from slime_testing.fake_engine import FakeEngine, Slow

NUM_GPUS = 0


class TestOnTheFake(FakeServerContract):
    __test__ = True

    @pytest.fixture(autouse=True)
    def _serve(self) -> Iterator[None]:
        with FakeEngine(Slow(0.05)) as server:
            type(self).server, type(self).settings = server, {"urls": [server.url]}
            yield
