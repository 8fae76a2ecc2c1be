"""Environments: one for each client's version, under the cache folder, made once and used by all that come later.

What is newest is what was so when its environment was made: `make clean` removes them all. npm's clients are pinned.

python = environment("openai==1.1.0", "httpx<0.28")       # skips where the index cannot be reached
folder = npm_folder("openai@6.49.0")                      # so does this, and where there is no npm
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slime-agent-clients"
UNREACHABLE = (
    "Failed to establish a new connection",
    "NewConnectionError",
    "ConnectTimeoutError",
    "NameResolutionError",
)  # What pip says of an index that is not there
NPM_UNREACHABLE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT")  # And npm


def environment(*wanted: str) -> Path:
    """The Python of an environment that has these, and nothing of this project's.

    Raises:
        RuntimeError: pip does not install them.
    """
    name = "-".join(wanted).translate(str.maketrans("<>=! ,", "______"))
    folder = CACHE / f"{name}-{hashlib.blake2b(sys.version.encode(), digest_size=4).hexdigest()}"
    python = folder / "bin" / "python"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
            pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "-q"]
            done = subprocess.run([*pip, *wanted], capture_output=True, text=True, check=False)
            if done.returncode and any(each in done.stderr for each in UNREACHABLE):
                pytest.skip(f"the package index cannot be reached: {done.stderr.strip().splitlines()[0]}")
            if done.returncode:
                raise RuntimeError(f"pip install {' '.join(wanted)}: {done.stderr}")
            (folder / "done").touch()
    return python


def npm_folder(*wanted: str) -> Path:
    """A folder whose `node_modules` has these packages, given as NAME@VERSION."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("this client is installed by npm, which is not here")
    folder = CACHE / "-".join(wanted).translate(str.maketrans("@/", "__"))
    folder.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            argv = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), *wanted]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if done.returncode and any(each in done.stderr for each in NPM_UNREACHABLE):
                pytest.skip(f"npm's registry cannot be reached: {done.stderr.strip().splitlines()[0]}")
            if done.returncode:
                raise RuntimeError(f"npm install {' '.join(wanted)}: {done.stderr}")
            (folder / "done").touch()
    return folder
