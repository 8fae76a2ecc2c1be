"""What the files of a release are checked for: their contents, that a second build gives the same, and installs.

Example:

    check_contents(root, Path("dist/release/0.2.0"))
"""

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt"}
_LINE = re.compile(r"^pip install -c slime\.txt (?P<names>[^#\n]+)", re.MULTILINE)


class Refusal(Exception):
    """What is wrong, in a sentence."""


def check_contents(root: Path, out: Path) -> None:
    """Every wheel has what git has of its package, and nothing else.

    Raises:
        Refusal: a file is missing, or one that should not be there is.
    """
    for folder in [root, *(path.parent for path in root.glob("plugins/*/pyproject.toml"))]:
        told = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
        project, packages = told["project"], told["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
        stem = f"{project['name'].replace('-', '_')}-{project['version']}"
        listed = subprocess.run(
            ["git", "ls-files", "-z", *packages], cwd=folder, capture_output=True, text=True, check=True
        )
        with zipfile.ZipFile(out / f"{stem}-py3-none-any.whl") as wheel:
            names = set(wheel.namelist())
        metadata = {name for name in names if name.startswith(f"{stem}.dist-info/")}
        code, expected = names - metadata, set(listed.stdout.split("\0")) - {""}
        for what, found in (("lacks", expected - code), ("should not have", code - expected)):
            if found:
                raise Refusal(f"the wheel of {project['name']} {what} {', '.join(sorted(found)[:5])}")
        if lacking := {f"{stem}.dist-info/{name}" for name in METADATA} - metadata:
            raise Refusal(f"the wheel of {project['name']} lacks {', '.join(sorted(lacking))}")
        if not (out / f"{stem}.tar.gz").is_file():
            raise Refusal(f"there is no sdist {stem}.tar.gz")


def check_reproduced(first: Path, second: Path) -> None:
    """Two builds are the same, byte by byte.

    Raises:
        Refusal: a file differs, or is only in one.
    """
    sums = [
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in each.iterdir()}
        for each in (first, second)
    ]
    if differing := {name for name, _ in sums[0].items() ^ sums[1].items()}:
        raise Refusal(f"a second build differs in {', '.join(sorted(differing))}")


def combinations(root: Path, *, light: bool) -> Iterator[list[str]]:
    """What README.md says to install, line by line; `light` leaves out those with torch."""
    found = [shlex.split(match["names"]) for match in _LINE.finditer((root / "README.md").read_text("utf-8"))]
    if not found:
        raise Refusal("README.md has no line `pip install -c slime.txt ...`")
    yield from (names for names in found if not (light and _has_torch(names)))


def check_install(root: Path, names: Sequence[str], slime_txt: Path, version: str, bill: Path) -> None:
    """Install them into a fresh environment, see that they are ours and work, and write its bill of materials.

    Raises:
        Refusal: pip fails, a version is another, or a plugin does not load.
    """
    print(f"in a fresh environment: {' '.join(names)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="install-") as folder:
        python = Path(folder) / "venv/bin/python"
        _run([sys.executable, "-m", "venv", str(python.parents[1])], Path(folder))
        if _has_torch(names):  # without CUDA, where that can be had
            _run([str(python), str(root / "tools/install_torch.py")], Path(folder))
        _run([str(python), "-m", "pip", "install", "-q", "-c", str(slime_txt), *names], Path(folder))
        _run([str(python), "-m", "pip", "check"], Path(folder))
        said = _run([str(python.with_name("slime")), "plugins", "list", "--load", "--json"], Path(folder))
        loaded = {each["plugin"]: each["version"] for each in json.loads(said)["plugins"] if each["state"] == "loaded"}
        for name in names:
            plain = name.partition("[")[0]
            if loaded.get(plain) != version:
                raise Refusal(f"{plain} {version} is not loaded after pip install {' '.join(names)}: {loaded}")
        cyclonedx = [str(Path(sys.executable).with_name("cyclonedx-py")), "environment", "--output-reproducible"]
        _run([*cyclonedx, "--output-format", "JSON", "--output-file", str(bill), str(python)], Path(folder))


def _has_torch(names: Sequence[str]) -> bool:
    return any(re.search(r"\[.*\b(local|torch)\b.*\]|slime-(algorithms|local|train)", name) for name in names)


def _run(command: Sequence[str], folder: Path, **variables: str) -> str:
    env = {**os.environ, **variables}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refusal(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
