"""How the suite runs on several cores: a test that is marked `alone` runs while all other workers wait. And what
`make quick` leaves out, and how `async def` tests run.

Example:

    make test ARGS="-n 4 -k ledger"
"""

import asyncio
import fcntl
import inspect
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import Phase, settings

ROOT = Path(__file__).parent
SLOW = ROOT / "tests" / "slow.txt"
SLOW_S = 3.0
ASYNC_S = 120  # An `async def` test that takes longer hangs

# A worker has one core. Two threads of torch on it wait for each other more than they work.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# As in the local engine's workers; MKL reads it once, at the first product of a process, whichever test has that.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

# No test asserts a time. CI draws the same examples for the same code; `make long` draws new ones.
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
# For `make mutants`: few examples, and nothing shrunk.
settings.register_profile(
    "mutants", settings.get_profile("fixed"), max_examples=30, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out the files of tests/slow.txt")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Turns())
    if config.getoption("quick"):
        config.pluginmanager.register(Quick())


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` test in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    values = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(_run_entered(pyfuncitem.obj, values))
    return True


async def _run_entered(test: Callable[..., Awaitable[None]], values: dict[str, object]) -> None:
    """Give a test its fixtures; it gets what those that are async context managers yield in its loop."""
    async with asyncio.timeout(ASYNC_S), AsyncExitStack() as stack:
        for name, value in values.items():
            if isinstance(value, AbstractAsyncContextManager):
                values[name] = await stack.enter_async_context(value)
        await test(**values)


@pytest.fixture(autouse=True)
def _leave_no_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget what a test has imported from its own files: another one's `mine.py` is another module."""
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    own = str(tmp_path_factory.getbasetemp())
    for name in sys.modules.keys() - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(own):
            del sys.modules[name]


class Turns:
    """Any number of tests at once, or one that is alone. Nobody overtakes a test that waits to be alone."""

    def __init__(self) -> None:
        # Any two files will do: what is locked is never written.
        self.waiting, self.running = os.open(__file__, os.O_RDONLY), os.open(ROOT, os.O_RDONLY)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=_is_alone)  # last, so that they make nobody wait who has something to do

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        fcntl.flock(self.waiting, fcntl.LOCK_EX)
        fcntl.flock(self.running, fcntl.LOCK_EX if _is_alone(item) else fcntl.LOCK_SH)
        fcntl.flock(self.waiting, fcntl.LOCK_UN)
        try:
            return (yield)
        finally:
            # Closing would not do: a process that the test forked and left has these files, too.
            fcntl.flock(self.running, fcntl.LOCK_UN)


def _is_alone(item: pytest.Item) -> bool:
    return item.get_closest_marker("alone") is not None


class Quick:
    """Leaves out the files that tests/slow.txt lists, and names those that should be there."""

    def __init__(self) -> None:
        lines = SLOW.read_text("utf-8").splitlines()
        self.left_out = {ROOT / line for line in lines if line and not line.startswith("#")}
        self.seconds = Counter[str]()

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        return True if collection_path in self.left_out else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for file, seconds in self.seconds.most_common():
            if seconds > SLOW_S:
                terminalreporter.write_line(
                    f"{file} took {seconds:.0f} s: tests/slow.txt lists what takes over {SLOW_S:.0f}"
                )
