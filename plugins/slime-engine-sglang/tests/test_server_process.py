"""Real servers as processes: none outlives its driver, and the arguments that are listed are those of the release."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from servers import PYTHON, needs_servers

from slime_engine_sglang.arguments import NEWEST, SHIPPED, TELLS, installed_version
from slime_testing import write_tiny_model

pytestmark = [pytest.mark.server, pytest.mark.timeout(1200)]
LEFT_S = 10
DRIVER = """
import asyncio, sys
from pathlib import Path

from slime_core.roles import EngineSetup
from slime_testing import make_launcher
from slime_engine_sglang.engine import SglangEngine
from slime_engine_sglang.settings import SglangSettings

python, model, scratch = map(Path, sys.argv[1:])


async def main():
    launcher = make_launcher(scratch / "logs")
    setup = EngineSetup(
        lambda role, name, **settings: None, 0, hf_checkpoint=model, eos_token_ids=frozenset({2}),
        launcher=launcher, scratch=scratch / "engine",
    )
    engine = SglangEngine(SglangSettings(python=python, deterministic=True), setup)
    await engine.start()
    print(engine.url, flush=True)
    await engine.watch()


asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def _servers() -> None:
    needs_servers()


def descendants(pid: int) -> set[int]:
    """All that a process has started, and those have."""
    parents: dict[int, int] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                parents[int(each.name)] = int((each / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found, new = set[int](), {pid}
    while new:
        found |= new
        new = {each for each, parent in parents.items() if parent in new} - found
    return found - {pid}


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_killed_driver_leaves_no_process(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model")
    command = [sys.executable, "-c", DRIVER, str(PYTHON), str(model), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        try:
            assert driver.stdout.readline().startswith("http://")
            started = descendants(driver.pid)
            names = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in started]
            assert any(name.startswith(b"sglang::scheduler") for name in names)
        finally:
            os.kill(driver.pid, signal.SIGKILL)
    deadline = time.monotonic() + LEFT_S
    while (left := [pid for pid in started if lives(pid)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


def test_what_is_listed_is_what_the_release_takes(tmp_path: Path) -> None:
    if installed_version(PYTHON) != NEWEST:
        pytest.skip(f"the servers' environment has {installed_version(PYTHON)}, and what is listed is of {NEWEST}")
    told = tmp_path / "told.json"
    subprocess.run([PYTHON, "-P", TELLS, told, "sglang"], check=True, capture_output=True)
    assert listed(told) == listed(SHIPPED)


def listed(path: Path) -> list[object]:
    """Every argument; of its help the letters, since SGLang writes sets into it, in another order each time."""
    return [{**each, "help": sorted(each["help"])} for each in json.loads(path.read_text("utf-8"))]
