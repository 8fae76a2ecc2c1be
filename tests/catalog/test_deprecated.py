"""A hook that will go: its implementations cause a warning with their place, and work as before."""

from collections.abc import Callable, Iterable

import pluggy
import pytest

from slime_core.catalog import Catalog, PluginState, loading
from slime_core.hookspecs import PROJECT, ProviderHookSpecs, RunHookSpecs, hookspec
from slime_core.roles import RewardSpec
from tests.tables import table

Install = Callable[..., None]
WHAT_TO_WRITE = "slime_rewards is deprecated since 0.2 and gone in 0.4: write slime_scores"
PLUGIN = """
from slime_core import RewardSpec, Score, hookimpl

SLIME_API = "1"

@hookimpl
def slime_rewards():
    yield RewardSpec.from_function("one", lambda sample, ctx: Score(1.0))
"""


class Later(ProviderHookSpecs):
    """The provider hooks of a later release, in which one is on its way out."""

    @hookspec(warn_on_impl=FutureWarning(WHAT_TO_WRITE))
    def slime_rewards(self) -> Iterable[RewardSpec]:
        raise NotImplementedError


def later_manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager(PROJECT)
    for specs in (Later, RunHookSpecs, loading.RankHookSpecs):
        manager.add_hookspecs(specs)
    return manager


@pytest.fixture(autouse=True)
def _a_later_release(monkeypatch: pytest.MonkeyPatch, install_plugin: Install) -> None:
    class LaterLoader(loading.Loader):
        def __init__(self) -> None:
            super().__init__(manager=later_manager())

    monkeypatch.setattr("slime_core.catalog.catalog.Loader", LaterLoader)
    install_plugin("slime-reward-old", {"slime_reward_old.py": PLUGIN}, entry_points={"reward-old": "slime_reward_old"})


def test_a_warning_has_the_place_and_what_to_write() -> None:
    with pytest.warns(FutureWarning, match=WHAT_TO_WRITE) as caught:
        Catalog.discover()
    (warned,) = [each for each in caught if each.filename.endswith("slime_reward_old.py")]
    assert warned.lineno == 6


@pytest.mark.filterwarnings("ignore::FutureWarning")
@table("strict", [False, True])
def test_it_works_as_before_where_broken_plugins_are_errors_too(strict: bool) -> None:
    catalog = Catalog.discover(strict=strict)
    assert "slime-reward-old/one" in catalog.choices("reward")
    (status,) = (each for each in catalog.statuses if each.dist == "slime-reward-old")
    assert status.state is PluginState.LOADED
