"""Runs the checks of `slime doctor`, of the core and of plugins; each returns a finding.

Example:

    for examined in examine(catalog, setup):
        print(examined.name, examined.finding.health.value, examined.finding.text)
"""

import importlib.metadata
import os
import platform
import re
import shutil
import sys
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path

import slime_core
from slime_core.catalog import (
    Catalog,
    PluginWarning,
    RegisteredChoice,
)
from slime_core.roles import CheckSpec, Finding, Health, Setup

MIB = 2**20
SMALL_SHARED_MEMORY_MIB = 64
"""Default size of a container's shared memory, which one batch of a data loader can fill."""


def python_version() -> Finding:
    """Compares the running Python with the versions in slime-core's metadata."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    text = f"{platform.python_implementation()} {platform.python_version()} in {sys.prefix}"
    tested = _tested_versions()
    if tested and running not in tested:
        advice = f"use an environment with Python {', '.join(tested)}, on which slime-core is tested"
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


def cpus(quota_file: Path = Path("/sys/fs/cgroup/cpu.max")) -> Finding:
    """Compares the process's available cores with its control group's CPU limit."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    text = f"{usable} core{'s' * (usable != 1)}"
    try:
        quota, period = quota_file.read_text(encoding="ascii").split()
        allowed = usable if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):  # no control groups, or an older version
        return Finding(Health.OK, text)
    if allowed < usable:
        advice = f"keep --engine.local.workers and --trainer.local.ranks at {max(1, int(allowed))} or fewer"
        return Finding(Health.WARNING, f"{text}, but the control group limits the CPU time to {allowed:g}", advice)
    return Finding(Health.OK, text)


def shared_memory(folder: Path = Path("/dev/shm")) -> Finding:
    """Checks the free space of /dev/shm."""
    if not folder.is_dir():
        return Finding(Health.OK, f"no {folder} on this system")
    usage = shutil.disk_usage(folder)
    text = f"{usage.free // MIB} MiB of {usage.total // MIB} MiB free in {folder}"
    if usage.free < SMALL_SHARED_MEMORY_MIB * MIB:
        return Finding(Health.WARNING, text, "delete old files there, or start the container with --shm-size=1g")
    return Finding(Health.OK, text)


CORE = "slime-core"
OUR_ENTRY_POINT = ("slime.plugins", "slime_core.builtin")
"""Group and value of an entry point by which this project is recognized."""


def core_distribution() -> Finding:
    """Checks that the installed distribution slime-core contains this module."""
    location = Path(slime_core.__file__).parent
    found = [each for each in importlib.metadata.distributions() if re.sub(r"[-_.]+", "-", each.name).lower() == CORE]
    others = [each for each in found if not _is_ours(each)]
    if others:
        places = ", ".join(f"{each.version} in {each.locate_file('')}" for each in others)
        return Finding(
            Health.ERROR,
            f"the installed {CORE} is another project of this name: {places}; this one is at {location}",
            f"pip uninstall {CORE}, then in a checkout of this project: pip install -e .",
        )
    if not found:
        return Finding(
            Health.ERROR,
            f"{CORE} can be imported from {location}, but is not installed, so its choices are not found",
            "in its checkout: pip install -e .",
        )
    if found[0].version != slime_core.__version__:
        return Finding(
            Health.WARNING,
            f"{CORE} {slime_core.__version__} at {location}, but its metadata says {found[0].version}",
            "install it again, in its checkout: pip install -e .",
        )
    return Finding(Health.OK, f"{CORE} {slime_core.__version__} at {location}")


def _is_ours(distribution: Distribution) -> bool:
    return OUR_ENTRY_POINT in {(each.group, each.value) for each in distribution.entry_points}


def plugins() -> Finding:
    """Loads every installed plugin and names each one that fails to load."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # the finding reports it
        statuses = Catalog.discover(strict=False).statuses
    if failed := [each for each in statuses if each.failed]:
        names = " ".join(each.dist for each in failed if each.dist)
        text = f"{len(failed)} of {len(statuses)} plugins cannot be loaded: {'; '.join(map(str, failed))}"
        return Finding(Health.ERROR, text, f"fix the cause, or pip uninstall {names}")
    return Finding(Health.OK, ", ".join(f"{each.plugin} {each.version}" for each in statuses))


GIB = 2**30
LOW_DISK_GIB = 5
"""Space for three checkpoints of 100 million weights at 16 bytes: model, master weights and two moments in fp32."""


def room() -> Finding:
    """Checks the free disk space for runs/, and whether this user may write there."""
    folder = _nearest(Path("runs"))
    free = shutil.disk_usage(folder).free
    text = f"{free / GIB:.1f} GiB free in {folder.resolve()}"
    if not os.access(folder, os.W_OK):
        return Finding(
            Health.WARNING, f"this user cannot write to {folder.resolve()}", "use another folder with --save"
        )
    if free < LOW_DISK_GIB * GIB:
        return Finding(Health.WARNING, text, "free disk space, or use another disk with --save, before a run fails")
    return Finding(Health.OK, text)


def _nearest(folder: Path) -> Path:
    return folder if folder.is_dir() else Path()


def core_checks() -> Iterator[CheckSpec]:
    """The core's checks, in display order."""
    yield CheckSpec.from_function("python", python_version, "Is slime-core tested on this Python version?")
    yield CheckSpec.from_function("core", core_distribution, "Is this slime-core installed?")
    yield CheckSpec.from_function("plugins", plugins, "Can every installed plugin be loaded?")
    yield CheckSpec.from_function("cpus", cpus, "May this process use all visible cores?")
    yield CheckSpec.from_function("shared_memory", shared_memory, "Is /dev/shm large enough?")
    yield CheckSpec.from_function("room", room, "Is there enough disk space for runs?")


OWN = "slime-testing"
"""Package of the core's checks."""
TIMEOUT_S = 20.0
"""Seconds after which a check that hangs is abandoned."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A check that ran, and its finding."""

    name: str
    summary: str
    finding: Finding


def examine(catalog: Catalog, setup: Setup, timeout_s: float = TIMEOUT_S) -> Iterator[Examined]:
    """Run every check in the catalog, one after another.

    The core's checks run even if its entry point is missing, which they report.
    """
    offered = catalog.choices(CheckSpec).values()
    own = [each for each in offered if each.plugin == OWN] or list(_unregistered())
    for registered in [*own, *(each for each in offered if each.plugin != OWN)]:
        finding = _finding(registered, setup, timeout_s)
        yield Examined(registered.qualified, registered.spec.summary, finding)


def _unregistered() -> Iterator[RegisteredChoice[CheckSpec]]:
    for spec in core_checks():
        yield RegisteredChoice(spec, f"{OWN}/{spec.name}", OWN, "", "")


def _finding(registered: RegisteredChoice[CheckSpec], setup: Setup, timeout_s: float) -> Finding:
    found: list[object] = []

    def run() -> None:
        try:
            found.append(registered.spec.factory(registered.spec.model(), setup)())
        except (Exception, SystemExit) as error:
            found.append(_failed(registered, f"raised {type(error).__name__}: {error}"))

    # In a daemon thread, so that a check that hangs does not keep the process alive.
    thread = threading.Thread(target=run, name=f"check {registered.qualified}", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not found:
        return _failed(registered, f"did not return within {timeout_s:g} s")
    finding = found[0]
    if not isinstance(finding, Finding):
        return _failed(registered, f"returned a {type(finding).__name__}; expected a Finding")
    fields: tuple[object, ...] = (finding.health, finding.text, finding.advice)
    if list(map(type, fields)) != [Health, str, str]:
        return _failed(registered, f"returned {finding!r:.200}; expected a Finding with a Health and two texts")
    return finding


def _failed(registered: RegisteredChoice, problem: str) -> Finding:
    text = f"the check failed: it {problem}"
    return Finding(Health.ERROR, text, f"report this to the authors of {registered.plugin}: {registered.origin}")


__all__ = ["OWN", "TIMEOUT_S", "Examined", "core_checks", "examine"]
