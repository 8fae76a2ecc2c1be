"""The kit, tested: each bad plugin fails exactly the check that it is made for, and its good twin fails none.

`python test_mutants.py` runs it alone.
"""

import ast
import colorsys
import dataclasses
import importlib.util
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from slime_core.score import Score
from slime_testing import ALL_CHECKS, CheckStatus, Contract, PluginPackageContract

NUM_GPUS = 0
FOLDER = Path(__file__).parent / "mutants"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"mutants_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


MODULES = {path.stem: load(path) for path in sorted(FOLDER.glob("*.py"))}
PACKAGES = MODULES.pop("package")
each_module = pytest.mark.parametrize("name", MODULES)


def mutants(name: str) -> Iterator[tuple[str, type[Contract]]]:
    """The mutants of a new module, since they keep state; what one replaced is put back after it."""
    for identity, made in load(FOLDER / f"{name}.py").MUTANTS.items():
        for mutant in made:
            kept = colorsys.hls_to_rgb
            yield identity, mutant
            colorsys.hls_to_rgb = kept


def failing(contract: type[Contract]) -> dict[str, str]:
    return {result.identity: result.detail for result in contract.report() if result.status is CheckStatus.FAILED}


def keys_of_tables(path: Path) -> set[str]:
    """The texts that key the tables of a file, or are their values."""
    tables = (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Dict))
    texts = (each for table in tables for each in (*table.keys, *table.values))
    return {str(each.value) for each in texts if isinstance(each, ast.Constant)}


def test_every_check_has_a_mutant_and_gives_advice() -> None:
    # Engines and what computes with torch have their mutants beside their tests, which assert the same.
    tests = FOLDER.parent.parent
    elsewhere = (
        *(tests / "testing").rglob("test_*_contract*.py"),
        *(tests.parent / "plugins" / "slime-local" / "tests").glob("test_*_contract.py"),
    )
    known = {identity for module in (*MODULES.values(), PACKAGES) for identity in module.MUTANTS}
    known = known.union(*map(keys_of_tables, elsewhere)) & set(ALL_CHECKS)
    shared = {ALL_CHECKS[identity].method for identity in known if identity.startswith("REW")}
    missing = set(ALL_CHECKS) - known
    assert {each for each in missing if not each.startswith("GRW") or ALL_CHECKS[each].method not in shared} == {
        "GRW-013"  # both halves of it are checks of rewards
    }
    assert [identity for identity, info in ALL_CHECKS.items() if not info.advice] == []


def alone(contract: type[Contract], identity: str) -> CheckStatus:
    """How one check ends, as if those that it needs had passed: the long test runs these, too."""
    checks = contract.checks()
    contract._results.clear()  # noqa: SLF001  # the kit is tested, not used
    for needed in checks[identity].needs:
        contract._record(checks[needed], CheckStatus.PASSED, "")  # noqa: SLF001
    try:
        return contract.result(identity).status
    finally:
        contract.teardown_class()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter waits, for what never ends or is slow every time."""
    monkeypatch.setattr("slime_testing.reward.FORK_S", 1.0)
    monkeypatch.setattr("slime_testing.blocking.HANG_S", 1.0)
    monkeypatch.setattr("slime_testing.samples.TRIES", 1)
    monkeypatch.setattr("slime_testing.package.HANG_S", 5.0)


@each_module
def test_each_mutant_fails_its_check(name: str, impatient: None) -> None:
    found = [(identity, mutant, alone(mutant, identity)) for identity, mutant in mutants(name)]
    assert [each for each in found if each[-1] is not CheckStatus.FAILED] == []


@pytest.mark.long
@each_module
def test_each_mutant_fails_no_other(name: str) -> None:
    wrong = {identity: found for identity, mutant in mutants(name) if list(found := failing(mutant)) != [identity]}
    assert wrong == {}


@each_module
def test_the_good_twin_fails_no_check(name: str) -> None:
    first = {good.__bases__: good for good in reversed(MODULES[name].GOOD)}
    assert [failing(good) for good in first.values()] == [{}] * len(first)


@pytest.mark.long
@each_module
def test_good_twins_fail_no_check(name: str) -> None:
    assert [failing(good) for good in MODULES[name].GOOD] == [{}] * len(MODULES[name].GOOD)


def installed() -> type[PluginPackageContract]:
    return type("Installed", (PluginPackageContract,), {"dist": "slime-reward-short"})


@pytest.fixture
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the broken packages change in this process, if anything imports them here, is put back."""
    monkeypatch.setattr(json, "detect_encoding", json.detect_encoding)
    monkeypatch.setattr(Score, "__repr__", Score.__repr__)
    limit, level, handlers = sys.getrecursionlimit(), logging.root.level, list(logging.root.handlers)
    umask, on_signal = os.umask(0o22), signal.getsignal(signal.SIGUSR1)
    os.umask(umask)
    yield
    sys.setrecursionlimit(limit)
    logging.root.setLevel(level)
    logging.root.handlers[:] = handlers
    os.umask(umask)
    signal.signal(signal.SIGUSR1, on_signal)


@pytest.fixture
def install(
    install_plugin: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, _as_before: None
) -> Callable[[object], None]:
    """Installs a package where other processes find it too; what it writes where it is, it writes elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([sys.path[0], os.environ.get("PYTHONPATH", "")]))

    def install(package: object) -> None:
        given = {field.name: getattr(package, field.name) for field in dataclasses.fields(package)}  # type: ignore[arg-type]
        given |= {group: dict(given[group]) for group in ("entry_points", "contracts")}
        install_plugin("slime-reward-short", {"reward_short.py": given.pop("source")}, **given)

    return install


def each_package(most: int | None = None) -> pytest.MarkDecorator:
    rows = [(identity, package) for identity, packages in PACKAGES.MUTANTS.items() for package in packages[:most]]
    return pytest.mark.parametrize(("identity", "package"), rows)


@each_package(2)
@pytest.mark.filterwarnings("ignore")  # what a broken package warns of is what the kit is to find
def test_a_broken_package_fails_its_check(
    install: Callable[[object], None], impatient: None, identity: str, package: object
) -> None:
    install(package)
    assert alone(installed(), identity) is CheckStatus.FAILED


@each_package()
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_broken_package_fails_no_other_check(
    install: Callable[[object], None], identity: str, package: object
) -> None:
    install(package)
    assert list(found := failing(installed())) == [identity], found


@pytest.mark.parametrize("package", PACKAGES.GOOD)
def test_a_good_package_fails_no_check(install: Callable[[object], None], package: object) -> None:
    install(package)
    assert failing(installed()) == {}


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-m", "", __file__]))
