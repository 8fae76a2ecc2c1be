"""Discovery among really installed distributions: what loads, what does not, and what is said about it."""

import importlib
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from slime_core.catalog import Catalog, PluginState, PluginStatus, PluginWarning
from slime_core.errors import PluginError
from slime_core.roles import PluginSet
from tests.catalog.sources import reward_plugin
from tests.tables import table

Install = Callable[..., None]
GOOD = reward_plugin()


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))  # files of the project are added to it
    monkeypatch.delenv("SLIME_PLUGINS_STRICT", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # rows write other code of the same length


def install(install_plugin: Install, source: str, name: str = "slime-reward-other", **metadata: object) -> None:
    """Install it, also over an older one of the same name."""
    module = name.replace("-", "_")
    sys.modules.pop(module, None)
    importlib.invalidate_caches()
    arguments = {"entry_points": {name.removeprefix("slime-"): module}, **metadata}
    install_plugin(name, {f"{module}.py": source}, **arguments)


def status_of(catalog: Catalog, dist: str = "slime-reward-other") -> PluginStatus:
    (status,) = (status for status in catalog.statuses if status.dist == dist)
    return status


def failure(expected: str) -> PluginStatus:
    """Discover with one broken plugin, which must be warned of with the expected text."""
    with pytest.warns(PluginWarning, match=expected):
        catalog = Catalog.discover()
    assert "slime-reward-other/one" not in catalog.choices("reward")
    assert "slime-reward-other" not in catalog.plugin_set.expected
    status = status_of(catalog)
    assert status.state is PluginState.FAILED
    return status


def test_an_installed_plugin_offers_its_choices(install_plugin: Install) -> None:
    install(install_plugin, GOOD)
    catalog = Catalog.discover()
    found = catalog.choices("reward")["slime-reward-other/one"]
    assert (found.plugin, found.dist, found.version) == ("slime-reward-other", "slime-reward-other", "1.0")
    assert found.origin.endswith("slime_reward_other.py:7")
    assert status_of(catalog).state is PluginState.LOADED
    assert catalog.plugin_set.expected["slime-reward-other"] == "1.0"


@table(
    "statement",
    [
        "import no_such_module",
        "1 / 0",
        "raise SystemExit(3)",
        "raise GeneratorExit",
        "raise type('Odd', (BaseException,), {})",
    ],
)
def test_an_import_that_fails_is_a_status_and_a_warning(install_plugin: Install, statement: str) -> None:
    install(install_plugin, f"{statement}\n{GOOD}")
    status = failure(r"plugin slime-reward-other 1\.0 \(slime_reward_other\): failed: ")
    assert "slime_reward_other.py:1" in status.detail


def test_ctrl_c_names_the_plugin_that_is_being_loaded(install_plugin: Install) -> None:
    install(install_plugin, f"raise KeyboardInterrupt\n{GOOD}")
    with pytest.raises(KeyboardInterrupt, match=r"while plugin slime-reward-other 1\.0 was loaded"):
        Catalog.discover()


def test_an_object_that_raises_when_it_is_looked_at_is_a_status_and_a_warning(install_plugin: Install) -> None:
    odd = "class Odd:\n    def __getattr__(self, name):\n        raise RuntimeError(name)\n\nodd = Odd()\n"
    install(install_plugin, odd, entry_points={"reward-other": "slime_reward_other:odd"})
    failure("failed: RuntimeError: SLIME_API")


def test_metadata_that_is_gone_costs_nobody_a_plugin(install_plugin: Install, tmp_path: Path) -> None:
    install(install_plugin, GOOD)
    (tmp_path / "site" / "slime_reward_other-1.0.dist-info" / "METADATA").unlink()
    assert Catalog.discover().find("reward", "slime-reward-other/one").version == "1.0"


def test_entry_points_that_cannot_be_read_are_a_status_and_a_warning(install_plugin: Install, tmp_path: Path) -> None:
    install(install_plugin, GOOD)
    install(install_plugin, GOOD, "slime-reward-third")
    site = tmp_path / "site"
    (site / "slime_reward_other-1.0.dist-info" / "entry_points.txt").write_text("[slime.plugins]\nno equals sign\n")
    install_plugin("unrelated", {}, entry_points={})
    (site / "unrelated-1.0.dist-info" / "entry_points.txt").write_text("[console_scripts]\nno equals sign\n")
    failure(r"its entry_points\.txt cannot be read .* install it again")
    with pytest.warns(PluginWarning):
        assert status_of(Catalog.discover(), "slime-reward-third").state is PluginState.LOADED


def test_what_a_plugin_prints_when_it_is_loaded_is_not_output(
    install_plugin: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install(install_plugin, GOOD.replace("    yield", "    print('offering')\n    yield") + "\nprint('imported')\n")
    Catalog.discover()
    assert capsys.readouterr() == ("", "imported\noffering\n")


def test_the_others_load_beside_a_broken_one(install_plugin: Install) -> None:
    install(install_plugin, "import no_such_module")
    install(install_plugin, GOOD, "slime-reward-third")
    with pytest.warns(PluginWarning):
        catalog = Catalog.discover()
    assert status_of(catalog, "slime-reward-third").state is PluginState.LOADED


@table(
    "declared, expected",
    [
        ('SLIME_API = "0"', r"is written for plugin API 0; .* pip install --upgrade slime-reward-other slime-core=="),
        ('SLIME_API = "2"', r"is written for plugin API 2; .* newer slime-core, .* pip install 'slime-reward-other<"),
        ("", 'declares no SLIME_API; write SLIME_API = "1"'),
        ("SLIME_API = 1", 'declares SLIME_API = 1; write SLIME_API = "1"'),
    ],
)
def test_another_api_is_refused_with_the_line_that_fixes_it(
    install_plugin: Install, declared: str, expected: str
) -> None:
    install(install_plugin, GOOD.replace('SLIME_API = "1"', declared))
    failure(expected)


@table("api", ["0", "2"])
def test_one_of_ours_for_another_api_is_taken_from_a_checkout_and_no_index(install_plugin: Install, api: str) -> None:
    source = GOOD.replace('SLIME_API = "1"', f'SLIME_API = "{api}"')
    entry_points = {"reward-math": f"math_of_api_{api}"}
    install_plugin("slime-reward-math", {f"math_of_api_{api}.py": source}, entry_points=entry_points)
    install_line = "pip install -e . -e ./plugins/slime-reward-math"
    with pytest.warns(PluginWarning, match=f"plugin API {api}; .* from a checkout of slime-core: {install_line}$"):
        Catalog.discover()


@table(
    "hook, expected",
    [
        ("@hookimpl\ndef slime_reward(): yield", "there is no hook 'slime_reward'. Did you mean 'slime_rewards'?"),
        ("def slime_losses(): yield", "slime_losses is not marked: put @hookimpl above it"),
        ("@hookimpl\ndef slime_run_end(evnt): pass", "no argument 'evnt': it may take event. Did you mean 'event'?"),
        ("@hookimpl\ndef slime_losses(ctx): yield", "slime_losses has no argument 'ctx': it takes none"),
        ("@hookimpl\ndef slime_run_end(event=None): pass", "'event' has a default, so it would never be passed"),
        ("@hookimpl\ndef slime_run_end(**kwargs): pass", r"takes **kwargs, which is always empty"),
        ("@hookimpl\nasync def slime_losses(): return []", "slime_losses is `async def`"),
        ("@hookimpl\ndef slime_run_end(event): yield", "slime_run_end holds a `yield`"),
        ("@hookimpl(wrapper=True)\ndef slime_run_end(event): yield", "slime_run_end is a wrapper"),
        ("@hookimpl\nasync def slime_train_init(event): ...", "slime_train_init is `async def`; ranks have no event"),
        ("@hookimpl\ndef slime_train_init(evnt): ...", "slime_train_init has no argument 'evnt': it may take event."),
        ("@hookimpl\ndef slime_train_innit(event): ...", "Did you mean 'slime_train_init'?"),
        ("@hookimpl\ndef slime_before_train_step(event): yield", "slime_before_train_step holds a `yield`"),
        ("@hookimpl\ndef slime_correction(): yield", "Did you mean 'slime_corrections'?"),
        (
            "@hookimpl(specname='slime_runend')\ndef end(event): pass",
            "no hook 'slime_runend'. Did you mean 'slime_run_end'?",
        ),
    ],
)
def test_a_hook_that_would_never_work_is_refused(install_plugin: Install, hook: str, expected: str) -> None:
    install(install_plugin, f"{GOOD}\n{hook}\n")
    failure(re.escape(expected))


def test_nothing_of_a_refused_plugin_stays(install_plugin: Install) -> None:
    watching = "\n@hookimpl\ndef slime_run_end(): pass\n\n@hookimpl\ndef slime_train_init(event): pass\n"
    source = f"{GOOD}{watching}\n@hookimpl\ndef slime_losses(): return None\n"
    install(install_plugin, source)
    with pytest.warns(PluginWarning, match="slime_losses returned NoneType; yield specs"):
        catalog = Catalog.discover()
    assert all(registered.dist != "slime-reward-other" for registered in catalog.choices("reward").values())
    assert catalog.listeners("slime_run_end") == catalog.listeners("slime_train_init") == ()


@table(
    "body, expected",
    [
        ("    1 / 0", r"slime_losses raised ZeroDivisionError: division by zero \(.*\.py:\d+\)"),
        ("    return 7", "slime_losses returned int; yield specs"),
        ("    yield reward", "slime_losses offers a function; expected a LossSpec"),
        (
            "    yield RewardSpec.from_function('two', reward)",
            "slime_losses offers RewardSpec 'two'; yield it from slime_rewards",
        ),
        ("    yield RewardSpec('no spaces', reward)", "raised ValueError: RewardSpec name 'no spaces'"),
    ],
)
def test_what_is_no_spec_is_refused(install_plugin: Install, body: str, expected: str) -> None:
    install(install_plugin, f"{GOOD}\n@hookimpl\ndef slime_losses():\n{body}\n")
    failure(expected)


def test_the_same_name_twice_in_a_plugin_is_refused(install_plugin: Install) -> None:
    install(
        install_plugin,
        GOOD
        + GOOD.replace("def slime_rewards", "def more").replace("@hookimpl", "@hookimpl(specname='slime_rewards')"),
    )
    failure("slime_rewards offers 'one' twice; rename one")


def test_two_distributions_with_one_module_are_told_apart(install_plugin: Install) -> None:
    install(install_plugin, GOOD)
    install_plugin("slime-reward-zzz", {}, entry_points={"reward-zzz": "slime_reward_other"})
    with pytest.warns(PluginWarning, match="plugin slime-reward-other names the same module; remove one of the two"):
        catalog = Catalog.discover()
    assert status_of(catalog).state is PluginState.LOADED
    assert status_of(catalog, "slime-reward-zzz").state is PluginState.FAILED


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_strict_raises_at_once(install_plugin: Install, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    install(install_plugin, "import no_such_module")
    monkeypatch.setenv("SLIME_PLUGINS_STRICT", "1" if how == "environment" else "0")
    with pytest.raises(PluginError, match=r"plugin slime-reward-other 1\.0 .* No module named 'no_such_module'"):
        Catalog.discover(strict=True if how == "argument" else None)


def test_a_module_of_the_project_is_a_plugin_too(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(GOOD)
    catalog = Catalog.discover(PluginSet(modules=(f"{tmp_path}/mine.py",)))
    found = catalog.find("reward", "one")
    assert (found.dist, found.plugin) == ("", f"{tmp_path}/mine.py")
    assert catalog.find("reward", found.qualified) is found
    assert catalog.statuses[-1].state is PluginState.LOADED


def test_a_module_that_was_asked_for_and_is_broken_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import no_such_module")
    with pytest.raises(PluginError, match=r"broken.py\): failed: \S+broken.py cannot be imported: .*No module"):
        Catalog.discover(PluginSet(modules=(f"{tmp_path}/broken.py",)))


def test_discovery_is_the_same_in_another_process_and_imports_nothing_heavy(
    install_plugin: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(install_plugin, GOOD)
    code = """
        import sys
        from slime_core.catalog import Catalog
        print(*Catalog.discover().choices("reward"))
        print({"numpy", "ray", "torch", "transformers"} & set(sys.modules))
    """
    environment = {**os.environ, "PYTHONPATH": sys.path[0]}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert printed == f"{' '.join(Catalog.discover().choices('reward'))}\nset()\n"


def test_an_entry_point_to_the_wrong_module_is_refused(install_plugin: Install) -> None:
    install(install_plugin, "VALUE = 1")
    failure("is its entry point right")
