"""Which plugins are loaded, in which order, and what is said about names and contradictions."""

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slime_core.catalog import (
    Catalog,
    PluginState,
    PluginWarning,
    first_party,
    install_advice,
    version_advice,
)
from slime_core.errors import ConfigError, PluginError, UnknownName
from slime_core.roles import PluginSet
from tests.catalog.sources import reward_plugin
from tests.tables import table

Install = Callable[..., None]
SOURCE = reward_plugin("NAME", "@hookimpl\ndef slime_run_end(): ...")


@pytest.fixture(autouse=True)
def three(install_plugin: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three plugins beside what is installed; the environment asks for nothing."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for variable in ("SLIME_PLUGINS", "SLIME_PLUGINS_STRICT"):
        monkeypatch.delenv(variable, raising=False)
    for name in ("one", "two", "three"):
        install(install_plugin, name)


def install(install_plugin: Install, name: str, source: str = SOURCE, **more: str) -> None:
    arguments = {"entry_points": {f"my-{name}": f"my_{name}"}, **more}
    install_plugin(f"Slime.My_{name}", {f"my_{name}.py": source.replace("NAME", name)}, **arguments)


def loaded(catalog: Catalog) -> list[str]:
    return [status.plugin for status in catalog.loaded]


def mine(catalog: Catalog) -> list[str]:
    return [name.removeprefix("slime-my-") for name in loaded(catalog) if name.startswith("slime-my-")]


def test_the_core_comes_first_then_distributions_by_name() -> None:
    names = loaded(Catalog.discover())
    assert names[0] == "slime-core"
    assert names[1:] == sorted(names[1:])


@table("name", ["slime-my-two", "Slime_My.Two", "my-two", "my_two"])
def test_a_plugin_is_named_by_distribution_or_entry_point(name: str) -> None:
    assert mine(Catalog.discover(PluginSet(only=(name,)))) == ["two"]
    assert mine(Catalog.discover(PluginSet(without=(name,)))) == ["one", "three"]
    assert loaded(Catalog.discover(PluginSet(require=(name,))))[:2] == ["slime-core", "slime-my-two"]


def test_order_decides_who_is_told_first() -> None:
    catalog = Catalog.discover(PluginSet(require=("my-two", "my-one")))
    told = [each.plugin for each in catalog.listeners("slime_run_end") if each.plugin.startswith("slime-my-")]
    assert told == ["slime-my-two", "slime-my-one", "slime-my-three"]


def test_an_allow_list_keeps_its_order_and_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIME_PLUGINS", "my-three, slime-my-one,")
    assert loaded(Catalog.discover()) == ["slime-core", "slime-my-three", "slime-my-one", "slime-train"]
    monkeypatch.setenv("SLIME_PLUGINS", "")
    assert loaded(Catalog.discover()) == ["slime-core", "slime-train"]


def test_what_is_left_out_is_a_status_and_is_not_imported(install_plugin: Install) -> None:
    install(install_plugin, "four", "raise AssertionError('imported')")
    catalog = Catalog.discover(PluginSet(without=("my-four",)))
    (status,) = (each for each in catalog.statuses if each.plugin == "slime-my-four")
    assert (status.state, status.failed) == (PluginState.EXCLUDED, False)
    assert status is catalog.statuses[-1]
    assert "--no-plugin" in str(status)


@table("field", ["only", "without", "require"])
def test_a_name_that_nobody_has_is_an_error(field: str) -> None:
    with pytest.raises(UnknownName) as caught:
        Catalog.discover(PluginSet(**{field: ("slime-my-twoo",)}))  # type: ignore[arg-type]
    text = str(caught.value)
    assert "no plugin 'slime-my-twoo' (" in text
    assert "Did you mean 'slime-my-two'?" in text
    assert re.search(r"Installed: slime-core [\d.]+, .*slime-my-one 1\.0, slime-my-three 1\.0, slime-my-two 1\.0", text)
    assert ("pip install slime-my-twoo" in text) == (field != "without")
    assert ("Modules of the project load only where --plugin" in text) == (field == "without")


def hide(monkeypatch: pytest.MonkeyPatch, dist: str) -> None:
    """Let the plugins of a distribution be not installed."""
    every = importlib.metadata.entry_points

    def without(group: str) -> list[importlib.metadata.EntryPoint]:
        return [each for each in every(group=group) if each.dist and each.dist.name != dist]

    monkeypatch.setattr("importlib.metadata.entry_points", without)


def test_a_first_party_plugin_that_is_required_is_installed_from_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "slime-reward-math")
    with pytest.raises(
        UnknownName, match=r"checkout of slime-core: pip install -e \. -e \./plugins/slime-reward-math$"
    ):
        Catalog.discover(PluginSet(require=("slime-reward-math",)))


def test_a_file_beside_is_offered_where_a_plugin_of_its_name_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside.py").write_text(SOURCE)
    with pytest.raises(UnknownName, match=r"For the file in this directory write \./beside\.py"):
        Catalog.discover(PluginSet(require=("beside",)))


def test_a_required_plugin_that_is_broken_is_an_error(install_plugin: Install) -> None:
    install(install_plugin, "four", "import no_such_module")
    with pytest.raises(PluginError, match=r"No module named 'no_such_module'.* slime plugins check slime-my-four"):
        Catalog.discover(PluginSet(require=("my-four",)))
    with pytest.warns(PluginWarning, match="slime-my-four"):
        Catalog.discover(PluginSet(require=("my-two",)))


@table(
    "wanted, expected",
    [
        (PluginSet(require=("my-two",), without=("slime-my-two",)), "slime-my-two is both asked for .* and left out"),
        (PluginSet(only=("my-two",), without=("my-two",)), "slime-my-two is both asked for .* and left out"),
        (PluginSet(only=("my-two",), require=("my-one",)), "slime-my-one is asked for .* not in the list .*: my-two"),
        (PluginSet(only=(), require=("my-one",)), "slime-my-one is asked for .* not in the list .*: nothing"),
        (PluginSet(without=("slime-core",)), "slime-core cannot be left out"),
        (PluginSet(without=("builtin",)), "slime-core cannot be left out"),
    ],
)
def test_contradictions_are_refused(wanted: PluginSet, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        Catalog.discover(wanted)


def test_two_distributions_with_one_entry_point_name_are_told_apart(install_plugin: Install) -> None:
    install(install_plugin, "zzz", entry_points={"my-two": "my_zzz"})  # type: ignore[arg-type]
    with pytest.warns(PluginWarning) as caught:
        catalog = Catalog.discover()
    (warning,) = (str(each.message) for each in caught)
    assert "slime-my-zzz 1.0 (my_zzz): failed: its entry point 'my-two' has the name of one of" in warning
    assert "slime-my-two 1.0. Uninstall one of the two, leave one out (--no-plugin slime-my-two)" in warning
    assert "two" in mine(catalog)
    assert "zzz" not in mine(catalog)
    with pytest.raises(ConfigError, match=r"'my-two' .* is an entry point of slime-my-two and slime-my-zzz: name the"):
        Catalog.discover(PluginSet(require=("my-two",)))
    with pytest.warns(PluginWarning, match="slime-my-two 1.0 .*failed"):
        assert "zzz" in mine(Catalog.discover(PluginSet(require=("slime-my-zzz",))))
    assert "zzz" in mine(Catalog.discover(PluginSet(without=("slime-my-two",))))


def test_an_unknown_choice_names_every_plugin_that_may_have_it(install_plugin: Install) -> None:
    install(install_plugin, "four", "import no_such_module")
    with pytest.warns(PluginWarning):
        catalog = Catalog.discover(PluginSet(without=("my-two",)))
    with pytest.raises(UnknownName) as caught:
        catalog.find("reward", "onee")
    for sentence in (
        "no reward 'onee'. Did you mean 'one'?",
        "one (slime-my-one 1.0)",
        "Might offer it: plugin slime-my-two 1.0 (my_two): excluded: left out (--no-plugin",
        "Not loaded, and might have offered it: plugin slime-my-four 1.0 (my_four): failed: ModuleNotFound",
        "slime plugins check slime-my-four",
    ):
        assert sentence in str(caught.value)


@table("name", ["gpqa", "boxed_ifbench", "slime-reward-math/dapo"])
def test_a_reward_of_a_first_party_plugin_is_known_by_name(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    hide(monkeypatch, "slime-reward-math")
    short = name.rpartition("/")[2]
    with pytest.raises(UnknownName, match=rf"'{short}' comes with slime-reward-math\. .* ./plugins/slime-reward-math"):
        Catalog.discover().find("reward", name)


def test_what_the_plugins_of_the_checkout_offer_is_written_down() -> None:
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "tools/first_party.py"]
    checked = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@table("dist", ["slime-core", *first_party()])
def test_no_line_to_type_asks_an_index_for_a_name_of_ours(dist: str) -> None:
    for line in (install_advice(dist), version_advice(dist, "0.1.0")):
        named = line.partition("pip install ")[2].removeprefix("-e .").split(" -e ./plugins/")[1:]
        assert named[-1:] == ([] if dist == "slime-core" else [dist])
        assert {other for each in named for other in first_party()[each].requires} <= set(named)
