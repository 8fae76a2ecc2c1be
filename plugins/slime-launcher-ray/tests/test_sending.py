"""A cluster whose nodes have Ray and what slime requires, but no slime."""

from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest
from bare import environment_without
from heads import head
from ray_live import Live

from slime_core.errors import WorkerError
from slime_core.roles import WorkerGroupSpec
from slime_launcher_ray.settings import RaySettings

pytestmark = pytest.mark.cluster

SPEC = WorkerGroupSpec("kit", 1, "whereabouts:Whereabouts", {})


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its head's."""
    names = {each.name for each in distributions() if each.name.startswith("slime-")}
    root = tmp_path_factory.mktemp("bare")
    python = environment_without(root / "environment", *names)
    with head([python, "-m", "ray.scripts.scripts"], root) as started:
        yield started.address


@pytest.fixture
def live(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Live]:
    """A launcher that sends, or not, in a folder that has no slime: Ray has workers look in the driver's, too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    made = Live(tmp_path, RaySettings(address=address, send_packages=request.param))
    yield made
    made.run(made.launcher.close())
    made.loop.close()


@pytest.mark.parametrize("live", [True], indirect=True)
def test_what_is_installed_in_editable_form_is_sent(live: Live) -> None:
    async def play() -> object:
        group = await live.launcher.start(SPEC)
        (told,) = await group.call("of_slime")
        return told

    assert "/py_modules_files/" in str(live.run(play()))


@pytest.mark.parametrize("live", [False], indirect=True)
def test_a_node_without_slime_is_told_of(live: Live) -> None:
    with pytest.raises(WorkerError, match=r"kit: .*No module named 'slime_"):
        live.run(live.launcher.start(SPEC))
