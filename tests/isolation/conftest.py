"""Rewards of a project, protected as a run protects them, and whatever processes they leave."""

import asyncio
import shutil
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from slime_core.catalog import Catalog
from slime_core.processes import Protection
from slime_core.roles import PluginSet, Reward, RewardContext, Setup
from slime_core.sample import Sample
from slime_core.score import Verdict
from slime_core.stats import PluginStats
from slime_testing import make_sample

CONTEXT = RewardContext(rollout_id=3, evaluation=False, seed=7)
T = TypeVar("T")


class Bench:
    """A project folder with a file of rewards, and their protection."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stats = PluginStats()
        self.protection = Protection(plugins=PluginSet(only=(), root=root), seed=1, stats=self.stats)

    def reward(self, name: str, file: str = "rewards.py") -> Reward:
        """`file:name`, protected."""
        return self.choice("reward", f"./{file}:{name}")  # type: ignore[return-value]

    def choice(self, role: str, reference: str, **settings: object) -> object:
        """Any choice, protected."""
        registered = Catalog.discover(PluginSet(only=(), root=self.root)).find(role, reference)
        validated = registered.spec.model.model_validate(settings)
        setup = Setup(make=self.choice, seed=1)
        name = reference.rpartition(":")[2]
        return self.protection.protect(
            registered, validated, lambda: registered.spec.factory(validated, setup), name=name
        )

    def ask(self, name: str, *, file: str = "rewards.py", sample: Sample | None = None) -> Verdict:
        """One verdict of `file:name`, in a loop of its own."""
        return run(self.reward(name, file)(sample or make_sample(), CONTEXT))


def run(call: Awaitable[T]) -> T:
    async def main() -> T:
        return await call

    return asyncio.run(main())


def is_running(pid: int) -> bool:
    """Whether anything of a process is left: its main thread may be gone while others still end."""
    try:
        gone = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
        return not gone or len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except OSError:
        return False


@contextmanager
def opened(root: Path) -> Iterator[Bench]:
    """A bench that is closed at the end; no descriptor may be left."""
    shutil.copyfile(Path(__file__).with_name("bad_rewards.py"), root / "rewards.py")
    before = len(list(Path("/proc/self/fd").iterdir()))
    made = Bench(root)
    yield made
    made.protection.close()
    made.protection.close()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A bench for one test."""
    with opened(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A bench for a module: its server imports the core once."""
    with opened(tmp_path_factory.mktemp("shared")) as made:
        yield made
