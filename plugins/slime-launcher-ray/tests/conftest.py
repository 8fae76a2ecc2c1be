"""One cluster for all tests, since starting one is slow."""

from collections.abc import Iterator

import pytest
from ray_live import Live

from slime_launcher_ray.settings import RaySettings


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A cluster with four declared GPUs; Ray does not check the number."""
    live_launcher = Live(tmp_path_factory.mktemp("ray"), RaySettings(num_gpus=4, placement_timeout_s=2.0))
    yield live_launcher
    live_launcher.run(live_launcher.launcher.close())
    live_launcher.loop.close()
