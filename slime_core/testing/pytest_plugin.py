"""What pytest gets from slime-core: fixtures for tests of plugins. Loaded in every session, so it imports late."""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from slime_core.sample import Group, Sample
    from slime_core.testing.fake_engine import FakeEngine


def pytest_itemcollected(item: pytest.Item) -> None:
    """Expect the failures that a contract's `xfail` names; one that does not happen is a failure."""
    info = getattr(getattr(item, "function", None), "check", None)
    excuses = getattr(getattr(item, "cls", None), "xfail", {})
    if info is not None and info.identity in excuses:
        item.add_marker(pytest.mark.xfail(reason=excuses[info.identity], strict=True))


@pytest.fixture
def make_sample() -> "Callable[..., Sample]":
    """`slime_core.testing.make_sample`: a finished sample."""
    from slime_core.testing.samples import make_sample

    return make_sample


@pytest.fixture
def make_group() -> "Callable[..., Group]":
    """`slime_core.testing.make_group`: a finished, frozen group."""
    from slime_core.testing.samples import make_group

    return make_group


@pytest.fixture
def install_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """`slime_core.testing.write_distribution` into a folder on the import path, for this test alone.

    install_plugin("slime-reward-other", {"other.py": SOURCE}, entry_points={"reward-other": "other"})
    """
    from slime_core.testing.distribution import write_distribution

    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    loaded = set(sys.modules)
    yield functools.partial(write_distribution, folder)
    for name in set(sys.modules) - loaded:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)):
            del sys.modules[name]


@pytest.fixture
def fake_engine() -> "Iterator[Callable[..., FakeEngine]]":
    """`fake_engine(Slow(0.5))` starts a `slime_core.testing.FakeEngine`; all of them are stopped after the test."""
    from slime_core.testing.fake_engine import FakeEngine

    with contextlib.ExitStack() as started:
        yield lambda *script, **limits: started.enter_context(FakeEngine(*script, **limits))
