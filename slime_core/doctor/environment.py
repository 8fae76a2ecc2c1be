"""Checks of the machine and of what is installed beside the core: Python, extras, cores, shared memory."""

import importlib.metadata
import os
import platform
import re
import shutil
import sys
from pathlib import Path

from slime_core.roles import Finding, Health

MIB = 2**20
SMALL_SHARED_MEMORY_MIB = 64
"""What a container gets when nobody asks for more; one batch of a data loader fills it."""
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)\s*>=\s*(?P<least>[\d.]+)\s*;\s*extra\s*==\s*['\"](?P<extra>\w+)")


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


def local_extra() -> Finding:
    """Compares what is installed with the extra `local`, by metadata: torch is not imported."""
    missing, old, there = [], [], []
    for name, least in _requirements("local").items():
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(f"{name}>={least}")
            continue
        there.append(f"{name} {version}")
        if _numbers(version) < _numbers(least):
            old.append(f"{name}>={least}")
    if missing or old:
        lacking = [f"not installed: {', '.join(missing)}"] * bool(missing) + [f"too old: {', '.join(old)}"] * bool(old)
        quoted = " ".join(f"'{each}'" for each in missing + old)
        advice = f"the local engine and trainer need them: pip install {quoted}"
        return Finding(Health.WARNING, "; ".join(lacking), advice)
    return Finding(Health.OK, ", ".join(there))


def _requirements(extra: str) -> dict[str, str]:
    """Least version by distribution, of what an extra of slime-core asks for."""
    try:
        lines = importlib.metadata.requires("slime-core") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    matches = (_REQUIREMENT.match(line) for line in lines)
    return {found["name"]: found["least"] for found in matches if found and found["extra"] == extra}


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
