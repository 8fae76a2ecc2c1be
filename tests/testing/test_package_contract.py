"""Each mutant is an installed distribution with one thing wrong."""

from collections.abc import Callable

import pytest

from slime_core.testing import CheckStatus, PluginPackageContract

MODULE = """
from slime_core import RewardSpec, Score, Settings, Setup, hookimpl

SLIME_API = "1"


class Limits(Settings):
    limit: int = 3


async def short(sample, ctx):
    return Score(float(len(sample.response) < 3))


@hookimpl
def slime_rewards():
    yield RewardSpec("short", lambda settings, setup: short, Limits, summary="1 when the response is short")
"""
README = "Offers the reward `short`."
NAME = "slime-reward-short"


class Subject(PluginPackageContract):
    dist = NAME


def failing() -> set[str]:
    return {result.identity for result in Subject.report() if result.status is CheckStatus.FAILED}


@pytest.fixture
def install(install_plugin: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs the good plugin, with some things replaced; its module is found by other processes too."""
    import sys

    monkeypatch.setenv("PYTHONPATH", sys.path[0])

    def install(source: str = MODULE, **replaced: object) -> None:
        arguments = {"entry_points": {"reward-short": "reward_short"}, "readme": README, **replaced}
        install_plugin(NAME, {"reward_short.py": source}, **arguments)

    return install


def test_a_good_package_passes(install: Callable[..., None]) -> None:
    install()
    assert failing() == set()


def test_every_check_has_a_mutant() -> None:
    assert list(Subject.checks()) == [f"PKG-00{number}" for number in range(1, 8)]


def test_pkg_001_an_entry_point_of_another_name(install: Callable[..., None]) -> None:
    install(entry_points={"short": "reward_short"})
    assert failing() == {"PKG-001"}


def test_pkg_002_a_plugin_for_another_api(install: Callable[..., None]) -> None:
    install(MODULE.replace('SLIME_API = "1"', 'SLIME_API = "2"'))
    assert failing() == {"PKG-002"}


@pytest.mark.parametrize("line", ["import numpy", "import warnings; warnings.warn('old')", "print('hello')"])
def test_pkg_003_an_import_that_is_heavy_or_loud(
    install: Callable[..., None], line: str, recwarn: pytest.WarningsRecorder
) -> None:
    install(f"{line}\n{MODULE}")
    assert failing() == {"PKG-003"}


@pytest.mark.parametrize("requirement", ["slime-core", "slime-core>=0.1", "slime-core-extras>=0.1,<0.2"])
def test_pkg_004_a_core_without_bounds(install: Callable[..., None], requirement: str) -> None:
    install(requires=(requirement,))
    assert failing() == {"PKG-004"}


def test_pkg_005_a_choice_without_a_summary(install: Callable[..., None]) -> None:
    install(MODULE.replace(', summary="1 when the response is short"', ""))
    assert failing() == {"PKG-005"}


@pytest.mark.parametrize("field", ["limit: int", "limit: type = int"])
def test_pkg_006_settings_without_default_or_schema(install: Callable[..., None], field: str) -> None:
    install(MODULE.replace("limit: int = 3", field))
    assert failing() == {"PKG-006"}


def test_pkg_007_a_readme_that_names_no_choice(install: Callable[..., None]) -> None:
    install(readme="Rewards.")
    assert failing() == {"PKG-007"}
