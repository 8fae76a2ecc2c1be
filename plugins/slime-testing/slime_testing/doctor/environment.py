"""Checks of the machine and of what is installed beside the core: Python, requirements, cores, shared memory."""

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from slime_core.catalog import beside_this_core, how_to_install, is_ours
from slime_core.roles import Finding, Health

GROUP = "slime.plugins"
MIB = 2**20
SMALL_SHARED_MEMORY_MIB = 64
"""What a container gets when nobody asks for more; one batch of a data loader fills it."""
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)")
_LEAST = re.compile(r">=\s*(?P<least>[\d.]+)")


def python_version() -> Finding:
    """Compares the running Python with those named in the metadata of slime-core."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    text = f"{platform.python_implementation()} {platform.python_version()} in {sys.prefix}"
    tested = _tested_versions()
    if tested and running not in tested:
        advice = f"slime-core is tested on Python {', '.join(tested)}: make an environment with one of them"
        return Finding(Health.WARNING, text, advice)
    return Finding(Health.OK, text)


def _tested_versions() -> list[str]:
    try:
        metadata = importlib.metadata.metadata("slime-core")
    except importlib.metadata.PackageNotFoundError:
        return []
    classifiers = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each) for each in _classifiers(metadata))
    return [found[1] for found in classifiers if found]


def _classifiers(metadata: importlib.metadata.PackageMetadata) -> list[str]:
    return metadata.get_all("Classifier") or []


_FROM = {"torch": " --index-url https://download.pytorch.org/whl/cpu (without it, CUDA comes along: some GB)"}
"""What is better not taken from the package index as it is."""


def requirements() -> Finding:
    """Compares what is installed with what each plugin always needs, by metadata: nothing is imported."""
    plugins = sorted({each.dist.name for each in importlib.metadata.entry_points(group=GROUP) if each.dist})
    lacking, advice = list[str](), list[str]()
    for plugin in plugins:
        for name, least in _requirements(plugin):
            if wrong := _lacks(name, least):
                bound = f">={least}" if least else ""
                lacking.append(f"{plugin} needs {name}{bound}, {wrong}")
                advice.append(_advice(name, bound))
    if lacking:
        return Finding(Health.WARNING, "; ".join(lacking), "; ".join(dict.fromkeys(advice)))
    return Finding(Health.OK, f"what {', '.join(plugins)} need is there")


def _advice(name: str, bound: str) -> str:
    """What to type for a requirement that is not met."""
    if is_ours(name):
        return how_to_install(name)
    wanted = f"'{name}{bound}'"
    return beside_this_core(wanted) if name.startswith("slime-") else f"pip install {wanted}{_FROM.get(name, '')}"


def _requirements(plugin: str) -> Iterator[tuple[str, str]]:
    """Name and least version, or "", of what a distribution always needs."""
    for line in importlib.metadata.requires(plugin) or []:
        needed = _REQUIREMENT.match(line)
        if needed and ";" not in line:  # what is only of an extra, or of another Python
            least = _LEAST.search(line)
            yield needed["name"], least["least"] if least else ""


def _lacks(name: str, least: str) -> str:
    """What is wrong with a requirement, or ""."""
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "which is not installed"
    return f"and there is {version}" if _numbers(version) < _numbers(least) else ""


def _numbers(version: str) -> tuple[int, ...]:
    """The release of a version, without trailing zeros: 2.9.0+cpu -> (2, 9)."""
    digits = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(part) for part in digits[0].split(".")] if digits else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def cpus(quota_file: Path = Path("/sys/fs/cgroup/cpu.max")) -> Finding:
    """Compares the cores that the process may run on with the share of them that its control group allows."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    text = f"{usable} core{'s' * (usable != 1)}"
    try:
        quota, period = quota_file.read_text(encoding="ascii").split()
        allowed = usable if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):  # no control groups, or an older kind
        return Finding(Health.OK, text)
    if allowed < usable:
        advice = f"keep --engine.local.workers and --trainer.local.ranks at {max(1, int(allowed))} or fewer"
        return Finding(Health.WARNING, f"{text}, of which the control group allows {allowed:g}", advice)
    return Finding(Health.OK, text)


def shared_memory(folder: Path = Path("/dev/shm")) -> Finding:
    """Looks how much of /dev/shm is free."""
    if not folder.is_dir():
        return Finding(Health.OK, f"no {folder} on this system")
    usage = shutil.disk_usage(folder)
    text = f"{usage.free // MIB} MiB of {usage.total // MIB} MiB free in {folder}"
    if usage.free < SMALL_SHARED_MEMORY_MIB * MIB:
        return Finding(Health.WARNING, text, "remove what is left there, or start the container with --shm-size=1g")
    return Finding(Health.OK, text)
