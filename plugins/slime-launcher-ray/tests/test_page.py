"""The steps of docs/ray.md, as they are written there, on two nodes of this machine."""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from heads import OPEN
from small_run import small_run

from slime_core.processes import free_port
from slime_launcher_ray.guard import end_marked

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[3]
MARK = f"SLIME_RAY_PAGE={os.getpid()}"
WAIT_S = 120.0


def steps() -> list[str]:
    """The page's commands, in its order, without their comments."""
    text = (ROOT / "docs/ray.md").read_text("utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line[2:].partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if not line.startswith(("pip ", "python "))]


class Reader:
    """Does what the page says, with names and ports of this machine."""

    def __init__(self, folder: Path) -> None:
        """In a folder that has run.toml."""
        self.folder = folder
        self.port, self.jobs, self.agent = (free_port("127.0.0.1") for _ in range(3))
        self.files = Path(tempfile.mkdtemp(prefix="rp-"))  # short: the path of a socket has to be
        self.job = ""
        self.nodes: list[subprocess.Popen[bytes]] = []

    def do(self, step: str) -> subprocess.CompletedProcess[str]:
        """A step that ends."""
        changed = step.replace("FIRST:6379", f"127.0.0.1:{self.port}").replace("HEAD:8265", f"127.0.0.1:{self.jobs}")
        changed = changed.replace("=auto", f"=127.0.0.1:{self.port}").replace(" ID", f" {self.job}")
        variables, words = {}, shlex.split(changed)
        while "=" in words[0]:
            name, _, variables[name] = words.pop(0).partition("=")
        if words[:2] == ["ray", "start"]:
            return self._start(words)
        module = {"slime": "slime_core", "ray": "ray.scripts.scripts"}[words[0]]
        return subprocess.run(
            [sys.executable, "-m", module, *words[1:]],
            cwd=self.folder,
            env=os.environ | OPEN | variables,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def _start(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        """Start a node, which goes on."""
        own = ["--block", "--num-cpus=4"]
        if "--head" in words:
            words = [each.replace("6379", str(self.port)) for each in words]
            own += [f"--dashboard-port={self.jobs}", f"--dashboard-agent-listen-port={self.agent}"]
            own += [f"--temp-dir={self.files}"]
        name, _, value = MARK.partition("=")
        command = [sys.executable, "-m", "ray.scripts.scripts", *words[1:], *own]
        with (self.folder / "nodes.txt").open("a") as log:
            environment = os.environ | OPEN | {"SPT_NOENV": "1", name: value}
            self.nodes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
        if "--head" in words:
            self._wait_for_jobs()
        return subprocess.CompletedProcess(command, 0, "", "")

    def _wait_for_jobs(self) -> None:
        end = time.monotonic() + WAIT_S
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.jobs}/api/version", timeout=5).close()
                return
            assert time.monotonic() < end, (self.folder / "nodes.txt").read_text()
            time.sleep(0.2)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """Who follows the page."""
    small_run(tmp_path)
    made = Reader(tmp_path)
    yield made
    for node in made.nodes:
        node.terminate()
        node.wait()
    end_marked(MARK)
    shutil.rmtree(made.files, ignore_errors=True)


def test_every_step_does_what_the_page_says(reader: Reader) -> None:
    done = []
    for step in steps():
        told = reader.do(step)
        printed = told.stdout + told.stderr
        assert "Traceback" not in printed, f"{step}:\n{printed}"
        match step.split():
            case ["slime", "submit", "run.toml", *_]:
                assert told.returncode == 0, f"{step}:\n{printed}"
                reader.job = printed.split("job ")[1].partition(":")[0]
            case ["RAY_ADDRESS=auto", "slime", "doctor"]:
                rows = [line for line in printed.splitlines() if "slime-launcher-ray/" in line]
                assert len(rows) == 6, printed
                assert not [row for row in rows if "error" in row.lower()], printed
                assert "2 nodes" in printed
            case ["slime", "submit", "status", *_]:
                assert (told.returncode, "succeeded" in printed) == (0, True), printed
            case _:
                assert told.returncode == 0, f"{step}:\n{printed}"
        done.append(" ".join(step.split()[:2]))
    assert done == [
        "slime train",
        "ray start",
        "ray start",
        "RAY_ADDRESS=auto slime",
        "RAY_ADDRESS=auto slime",
        *["slime submit"] * 4,
    ]
    runs = [reader.folder / name for name in ("runs/on-the-cluster", "runs/as-a-job")]
    assert [(run / "checkpoints/rollout_000002").is_dir() for run in runs] == [True, True]
