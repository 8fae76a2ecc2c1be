"""Install a CPU build of torch into the environment that runs this file, unless a good one is there already.

The index's ordinary Linux build brings gigabytes of CUDA libraries, so pip is asked first what it would
install; only where that is a CUDA build is torch's own CPU index named. Standard library only: it runs before
anything is installed.

    .venv/bin/python tools/install_torch.py
"""

import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

WANTED = "torch==2.13.0"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Install torch if need be and return pip's exit status."""
    minimum = required_minimum()
    found = installed_version()
    if found is not None and release(found) >= release(minimum):
        print(f"torch {found} is installed (torch >= {minimum} is needed)")
        return 0
    with_cuda = needs_cuda(would_install())
    status = install("--index-url", CPU_INDEX) if with_cuda else install()
    if status != 0 and with_cuda and wants_cuda():
        status = install()
    if status != 0:
        print(f"{WANTED} could not be installed; pip says why above. Any torch >= {minimum} will do:")
        print(f"install one with `{sys.executable} -m pip install ...` and run the same make again.")
    return status


def install(*options: str) -> int:
    """Have pip install it; returns its exit status."""
    return subprocess.run(pip("install", *options, WANTED), check=False).returncode


def wants_cuda() -> bool:
    """Say what is left where the CPU index cannot be reached, and ask; without a terminal it is taken at once."""
    print(f"The CPU build could not be had from {CPU_INDEX}, as behind a proxy. The package index's ordinary build")
    print("works as well; with its CUDA libraries it is about 3 GB to download and 7 GB on disk.", flush=True)
    return not sys.stdin.isatty() or input("Install it? [Y/n] ").strip().lower() in ("", "y", "yes")


def required_minimum() -> str:
    """The lower bound of torch that slime-train requires."""
    path = ROOT / "plugins" / "slime-train" / "pyproject.toml"
    requirements = tomllib.loads(path.read_text("utf-8"))["project"]["dependencies"]
    requirement = next((each for each in requirements if each.startswith("torch")), "")
    name, _, minimum = str(requirement).partition(">=")
    if name != "torch" or not minimum:
        raise SystemExit(f"{path}: the dependency on torch should read 'torch>=X.Y', not {requirement!r}")
    return minimum


def installed_version() -> str | None:
    """The version of torch in this environment; None without one."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: '2.13.0+cpu' is (2, 13, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    if match is None:
        raise SystemExit(f"torch's version {version!r} does not start with a number")
    return tuple(int(part) for part in match.group().split("."))


def would_install() -> list[str]:
    """What the build that pip would choose requires; nothing if pip cannot say (installing will say why)."""
    dry_run = pip("install", "--dry-run", "--no-deps", "--quiet", "--report", "-", WANTED)
    answer = subprocess.run(dry_run, stdout=subprocess.PIPE, text=True, check=False)
    if answer.returncode != 0:
        return []
    (torch,) = json.loads(answer.stdout)["install"]
    return [str(requirement) for requirement in torch["metadata"].get("requires_dist", [])]


def needs_cuda(requirements: list[str]) -> bool:
    """Whether this is a CUDA build. Builds for other systems name the same packages behind a marker."""
    return sys.platform == "linux" and any(re.match(r"(nvidia|cuda)-", name) for name in requirements)


def pip(*arguments: str) -> list[str]:
    """The command line of this environment's pip."""
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]


if __name__ == "__main__":
    sys.exit(main())
