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


@pytest.fixture(autouse=True)
def the_library_as_it_was() -> Iterator[None]:
    """Without what a mutant replaced: in random order another class's code would be blamed for it."""
    kept = colorsys.hls_to_rgb
    yield
    colorsys.hls_to_rgb = kept


MODULES = [load(path) for path in sorted(FOLDER.glob("*.py"))]


def cases() -> Iterator[tuple[str, str, int, object]]:
    for module in MODULES:
        for identity, mutants in module.MUTANTS.items():
            for number, mutant in enumerate(mutants):
                yield module.__name__, identity, number, mutant


CONTRACTS = [case for case in cases() if isinstance(case[3], type)]
PACKAGES = [case for case in cases() if not isinstance(case[3], type)]
GOOD = [(module.__name__, number, good) for module in MODULES for number, good in enumerate(module.GOOD)]


def failing(contract: type[Contract]) -> dict[str, str]:
    return {result.identity: result.detail for result in contract.report() if result.status is CheckStatus.FAILED}


def keys_of_tables(path: Path) -> set[str]:
    """The texts by which the tables of a file are keyed."""
    tables = (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Dict))
    return {str(key.value) for table in tables for key in table.keys if isinstance(key, ast.Constant)}


def test_every_check_has_a_mutant() -> None:
    # Engines and what computes with torch have their mutants beside their tests, which assert the same.
    tests = FOLDER.parent.parent
    elsewhere = (
        *(tests / "testing").rglob("test_*_contract.py"),
        *(tests.parent / "plugins" / "slime-local" / "tests").glob("test_*_contract.py"),
    )
    known = {identity for _, identity, _, _ in cases()}.union(*map(keys_of_tables, elsewhere))
    assert sorted(known & set(ALL_CHECKS)) == sorted(ALL_CHECKS)


def test_every_check_gives_advice() -> None:
    assert [identity for identity, info in ALL_CHECKS.items() if not info.advice] == []


each_mutant = pytest.mark.parametrize(
    ("identity", "mutant"),
    [(identity, mutant) for _, identity, _, mutant in CONTRACTS],
    ids=[f"{identity}-{number}" for _, identity, number, _ in CONTRACTS],
)


@each_mutant
def test_a_mutant_fails_its_check(identity: str, mutant: type[Contract]) -> None:
    (found,) = mutant.report(identity)
    assert found.status is CheckStatus.FAILED, found.detail


@pytest.mark.long
@each_mutant
def test_a_mutant_fails_no_other(identity: str, mutant: type[Contract]) -> None:
    assert list(found := failing(mutant)) == [identity], found


@pytest.mark.parametrize(
    "good",
    [good for _, _, good in GOOD if isinstance(good, type)],
    ids=[f"{name}-{number}" for name, number, good in GOOD if isinstance(good, type)],
)
def test_a_good_twin_fails_no_check(good: type[Contract]) -> None:
    assert failing(good) == {}


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


@pytest.mark.parametrize(
    ("identity", "package"),
    [(identity, package) for _, identity, _, package in PACKAGES],
    ids=[f"{identity}-{number}" for _, identity, number, _ in PACKAGES],
)
@pytest.mark.filterwarnings("ignore")  # what a broken package warns of is what the kit is to find
def test_a_broken_package_fails_its_check_and_no_other(
    install: Callable[[object], None], identity: str, package: object
) -> None:
    install(package)
    assert list(found := failing(installed())) == [identity], found


@pytest.mark.parametrize("package", [good for _, _, good in GOOD if not isinstance(good, type)])
def test_a_good_package_fails_no_check(install: Callable[[object], None], package: object) -> None:
    install(package)
    assert failing(installed()) == {}


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-m", "", __file__]))
