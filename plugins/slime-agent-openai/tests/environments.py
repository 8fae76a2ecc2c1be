"""Environments: one for each client's version, under the cache folder, made once and used by all that come later.

What is newest is what was so when its environment was made: `make clean` removes them all. npm's clients are pinned.

python = environment("openai==1.1.0", "httpx<0.28")       # skips where the index cannot be reached
folder = npm_folder("openai@6.49.0")                      # so does this, and where there is no npm
"""

import asyncio
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slime-agent-clients"
UNREACHABLE = (
    "Failed to establish a new connection",
    "NewConnectionError",
    "ConnectTimeoutError",
    "NameResolutionError",
    *("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT"),
)  # What pip and npm say of an index that is not there


def environment(*wanted: str) -> Path:
    """The Python of an environment that has these, and nothing of this project's."""
    name = "-".join(wanted).translate(str.maketrans("<>=! ,", "______"))
    folder = CACHE / f"{name}-{hashlib.blake2b(sys.version.encode(), digest_size=4).hexdigest()}"
    python = folder / "bin" / "python"
    venv = [sys.executable, "-m", "venv", "--clear", "--without-pip", folder]
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "-q", *wanted]
    _make(folder, venv, pip)
    return python


def npm_folder(*wanted: str) -> Path:
    """A folder whose `node_modules` has these packages, given as NAME@VERSION."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("this client is installed by npm, which is not here")
    folder = CACHE / "-".join(wanted).translate(str.maketrans("@/", "__"))
    _make(folder, [npm, "install", "--no-audit", "--no-fund", "--prefix", folder, *wanted])
    return folder


def _make(folder: Path, *commands: Sequence[Path | str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "done").exists():
            return
        for argv in commands:
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if done.returncode and any(each in done.stderr for each in UNREACHABLE):
                pytest.skip(f"the index of packages cannot be reached: {done.stderr.strip().splitlines()[0]}")
            assert not done.returncode, done.stderr
        (folder / "done").touch()


async def said_last(cwd: Path, env: Mapping[str, str], *argv: Path | str) -> str:
    """The last line that a program prints, which has to end well."""
    piped = {"stdin": asyncio.subprocess.DEVNULL, "stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    process = await asyncio.create_subprocess_exec(*argv, cwd=cwd, env=env, **piped)
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()[-3000:]
    return out.decode().strip().splitlines()[-1]
