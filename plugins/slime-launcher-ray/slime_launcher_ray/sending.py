"""Sending: wheels of what is installed in editable form, for nodes that have other versions of it, or none.

Ray would install a wheel with all that it requires; so each is unpacked here, and its packages and its metadata are
sent as modules. A node has the rest, torch among it, in its image.

Example:

    modules = modules_of(["slime-core", "slime-reward-math"], Path("/tmp/made-for-this"))     # for py_modules
"""

import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from slime_core.errors import ConfigError

LAST_LINES = 5
OWN = ("slime-core", "slime-launcher-ray")
"""What every worker needs."""


def modules_of(distributions: Iterable[str], folder: Path) -> list[str]:
    """Folders to send, for Ray's `py_modules`; nothing for a distribution that is not in editable form.

    Args:
        distributions: names.
        folder: an empty one, where wheels are made and unpacked.

    Raises:
        ConfigError: a wheel cannot be made.
    """
    names = sorted(_with_required({*OWN, *distributions}))
    projects = {name: project for name in names if (project := editable_project(name)) is not None}
    if not projects:
        return []
    # Without the index where it can be: what builds them is at hand in an environment of developers.
    alone = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", *alone]
    done = subprocess.run(
        [*command, "--wheel-dir", str(folder), *map(str, projects.values())],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = "\n".join(done.stderr.splitlines()[-LAST_LINES:])
        raise ConfigError(
            f"[launcher.ray] send_packages: no wheels could be made of {', '.join(projects)}; pip said:\n{said}"
        )
    found: list[str] = []
    for wheel in sorted(folder.glob("*.whl")):
        unpacked = folder / wheel.stem
        zipfile.ZipFile(wheel).extractall(unpacked)
        found += [str(each) for each in sorted(unpacked.iterdir()) if each.is_dir()]
    return found


def _with_required(names: set[str]) -> set[str]:
    required = {
        match[0]
        for name in names
        for line in _requirements(name)
        if "extra ==" not in line and (match := re.match(r"slime-[a-z-]+", line))
    }
    return names if required <= names else _with_required(names | required)


def _requirements(name: str) -> list[str]:
    try:
        return importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return []


def editable_project(name: str) -> Path | None:
    """The folder of a distribution's project, if it is installed in editable form."""
    try:
        text = importlib.metadata.distribution(name).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    told = json.loads(text) if text else {}
    if not told.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(told["url"]).path))
