"""Runs the checks of `slime doctor`, those here and those of plugins; every one ends in a finding.

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
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path

import slime_core
from slime_core.catalog import (
    Catalog,
    PluginWarning,
    Registered,
    beside_this_core,
    how_to_install,
    is_ours,
)
from slime_core.roles import CheckSpec, Finding, Health, Setup

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
    if is_ours(name):
        return how_to_install(name)
    wanted = f"'{name}{bound}'"
    return beside_this_core(wanted) if name.startswith("slime-") else f"pip install {wanted}{_FROM.get(name, '')}"


def _requirements(plugin: str) -> Iterator[tuple[str, str]]:
    for line in importlib.metadata.requires(plugin) or []:
        needed = _REQUIREMENT.match(line)
        if needed and ";" not in line:  # what is only of an extra, or of another Python
            least = _LEAST.search(line)
            yield needed["name"], least["least"] if least else ""


def _lacks(name: str, least: str) -> str:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "which is not installed"
    return f"and there is {version}" if _numbers(version) < _numbers(least) else ""


def _numbers(version: str) -> tuple[int, ...]:
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


CORE = "slime-core"
OUR_ENTRY_POINT = ("slime.plugins", "slime_core.builtin")
"""Group and value of what only this slime-core has in its metadata."""


def core_distribution() -> Finding:
    """Sees that the distribution called slime-core is the one that this module belongs to."""
    here = Path(slime_core.__file__).parent
    found = [each for each in importlib.metadata.distributions() if _plain(each.name) == CORE]
    strangers = [each for each in found if not _is_ours(each)]
    if strangers:
        places = ", ".join(f"{each.version} in {folder_of(each)}" for each in strangers)
        return Finding(
            Health.ERROR,
            f"the {CORE} that is installed is another project of that name: {places}; ours is at {here}",
            f"pip uninstall {CORE}, then in a checkout of ours: pip install -e .",
        )
    if not found:
        return Finding(
            Health.ERROR,
            f"{CORE} can be imported from {here}, but is not installed: no plugin of its own is found",
            "in its checkout: pip install -e .",
        )
    if found[0].version != slime_core.__version__:
        return Finding(
            Health.WARNING,
            f"{CORE} {slime_core.__version__} at {here}, but its metadata says {found[0].version}",
            "install it again: pip install -e . in its checkout",
        )
    return Finding(Health.OK, f"{CORE} {slime_core.__version__} at {here}")


def _is_ours(distribution: Distribution) -> bool:
    return OUR_ENTRY_POINT in {(each.group, each.value) for each in distribution.entry_points}


def duplicates() -> Finding:
    """Looks for distributions of slime that are on the import path more than once: only the first one counts."""
    several = {name: those for name, those in _by_name().items() if len(those) > 1}
    if not several:
        return Finding(Health.OK, "every plugin is installed once")
    texts = [
        f"{name} is there {len(those)} times, and the first counts: "
        + ", ".join(f"{each.version} in {_metadata_folder(each)}" for each in those)
        for name, those in several.items()
    ]
    advice = f"pip uninstall {' '.join(sorted(several))}, until it says that there is none, and install again"
    return Finding(Health.WARNING, "; ".join(texts), advice)


def _by_name() -> dict[str, list[Distribution]]:
    found: dict[str, dict[Path, Distribution]] = defaultdict(dict)
    ours = {CORE}
    for each in importlib.metadata.distributions():
        name = _plain(each.name)
        # A folder may be on the import path twice.
        found[name].setdefault(_metadata_folder(each).resolve(), each)
        if any(point.group.startswith("slime.") for point in each.entry_points):
            ours.add(name)
    return {name: list(found[name].values()) for name in sorted(ours & found.keys())}


def folder_of(distribution: Distribution) -> Path:
    """The folder of the import path that a distribution lies in."""
    return Path(str(distribution.locate_file("")))


def _metadata_folder(distribution: Distribution) -> Path:
    folder = getattr(distribution, "_path", None)  # the standard library offers no public name for it
    return Path(str(folder)) if folder is not None else folder_of(distribution)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def plugins() -> Finding:
    """Loads every installed plugin and names those that do not load."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # the finding says it
        statuses = Catalog.discover(strict=False).statuses
    if failed := [each for each in statuses if each.failed]:
        names = " ".join(each.dist for each in failed if each.dist)
        text = f"{len(failed)} of {len(statuses)} plugins cannot be used: {'; '.join(map(str, failed))}"
        return Finding(Health.ERROR, text, f"mend what the reason names, or pip uninstall {names}")
    return Finding(Health.OK, ", ".join(f"{each.plugin} {each.version}" for each in statuses))


GIB = 2**30
LITTLE_ROOM_GIB = 5
"""Three checkpoints of 100 million weights at 16 bytes each: the model, exact weights and two moments in fp32."""


def room() -> Finding:
    """Looks whether the disk under runs/ has room, and whether this user may write there."""
    folder = _nearest(Path("runs"))
    free = shutil.disk_usage(folder).free
    text = f"{free / GIB:.1f} GiB free in {folder.resolve()}"
    if not os.access(folder, os.W_OK):
        return Finding(Health.WARNING, f"{folder.resolve()} is read-only for this user", "give runs another --save")
    if free < LITTLE_ROOM_GIB * GIB:
        return Finding(Health.WARNING, text, "a checkpoint that does not fit ends the run: make room, or give --save")
    return Finding(Health.OK, text)


def _nearest(folder: Path) -> Path:
    return folder if folder.is_dir() else Path()


def core_checks() -> Iterator[CheckSpec]:
    """The core's own checks, in the order in which they are shown."""
    yield CheckSpec.from_function("python", python_version, "Is this a Python that slime-core is tested on?")
    yield CheckSpec.from_function("core", core_distribution, "Is the slime-core that is installed this one?")
    yield CheckSpec.from_function("duplicates", duplicates, "Does an old installation shadow a plugin?")
    yield CheckSpec.from_function("plugins", plugins, "Does every installed plugin load?")
    yield CheckSpec.from_function("requirements", requirements, "Is all there that plugins need?")
    yield CheckSpec.from_function("cpus", cpus, "May this process use the cores that it sees?")
    yield CheckSpec.from_function("shared_memory", shared_memory, "Is /dev/shm large enough?")
    yield CheckSpec.from_function("room", room, "Is there room for runs?")


OWN = "slime-testing"
"""The package of the checks here."""
PATIENCE_S = 20.0
"""Seconds after which a check is left behind."""


@dataclass(frozen=True, slots=True)
class Examined:
    """One check that was run."""

    name: str
    summary: str
    finding: Finding


def examine(catalog: Catalog, setup: Setup, patience_s: float = PATIENCE_S) -> Iterator[Examined]:
    """Run every check that plugins offer, one after another, in the order of the catalog.

    The core's own are run even where its entry point is not found: then they are needed most.
    """
    offered = catalog.choices(CheckSpec).values()
    own = [each for each in offered if each.plugin == OWN] or list(_unregistered())
    for registered in [*own, *(each for each in offered if each.plugin != OWN)]:
        finding = _finding(registered, setup, patience_s)
        yield Examined(registered.qualified, registered.spec.summary, finding)


def _unregistered() -> Iterator[Registered[CheckSpec]]:
    for spec in core_checks():
        yield Registered(spec, f"{OWN}/{spec.name}", OWN, "", "")


def _finding(registered: Registered[CheckSpec], setup: Setup, patience_s: float) -> Finding:
    found: list[object] = []

    def look() -> None:
        try:
            found.append(registered.spec.factory(registered.spec.model(), setup)())
        except (Exception, SystemExit) as error:
            found.append(_failed(registered, f"raised {type(error).__name__}: {error}"))

    # A daemon: a check that hangs must not keep the process.
    thread = threading.Thread(target=look, name=f"check {registered.qualified}", daemon=True)
    thread.start()
    thread.join(patience_s)
    if not found:
        return _failed(registered, f"gave no answer in {patience_s:g} s")
    if not isinstance(found[0], Finding):
        return _failed(registered, f"returned a {type(found[0]).__name__}; expected a Finding")
    return found[0]


def _failed(registered: Registered, what: str) -> Finding:
    text = f"the check itself {what}"
    return Finding(Health.ERROR, text, f"tell the authors of {registered.plugin}: {registered.origin}")


__all__ = ["OWN", "PATIENCE_S", "Examined", "core_checks", "examine"]
