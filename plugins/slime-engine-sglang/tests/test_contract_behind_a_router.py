"""The engine against the contract kit, on the kit's fake server behind a real router."""

from collections.abc import Iterator
from typing import ClassVar

import pytest
from fake_server_engines import FakeServerContract
from servers import needs_routers

from slime_testing.fake_engine import FakeEngine, Slow

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]


class BehindRouter(FakeServerContract):
    """One engine whose requests go through a router after its first response."""

    use: ClassVar[str]

    @pytest.fixture(autouse=True)
    def _serve(self) -> Iterator[None]:
        router = {"use": self.use, "python": str(needs_routers()), "policy": "round_robin"}
        with FakeEngine(Slow(0.05)) as server:
            type(self).server, type(self).settings = server, {"urls": [server.url], "router": router}
            yield


class TestBehindSmg(BehindRouter):
    __test__ = True
    use = "smg"


class TestBehindSglangRouter(BehindRouter):
    __test__ = True
    use = "sglang-router"
