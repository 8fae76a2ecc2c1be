"""One cluster for all tests: it is dear to start, and groups come and go in it."""

from collections.abc import Iterator

import pytest
from ray_live import Live

from slime_launcher_ray.settings import RaySettings


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Four GPUs are declared: Ray takes the number at its word."""
    made = Live(tmp_path_factory.mktemp("ray"), RaySettings(num_gpus=4, placement_timeout_s=2.0))
    yield made
    made.run(made.launcher.close())
    made.loop.close()
