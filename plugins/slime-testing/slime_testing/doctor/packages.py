"""Checks of installed distributions: is slime-core this one, and is each plugin installed once?

The name slime-core is taken on the public index: 0.0.1 there is another project, which pip gets by that name.
"""

import importlib.metadata
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import Distribution
from pathlib import Path

import slime_core
from slime_core.roles import Finding, Health

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
    texts = []
    stale: list[Path] = []
    for name, those in several.items():
        listed = ", ".join(f"{each.version} in {_metadata_folder(each)}" for each in those)
        texts.append(f"{name} is there {len(those)} times, and the first counts: {listed}")
        stale += _stale(those)
    names = " ".join(sorted(several))
    advice = f"pip uninstall {names}, until it says that there is none, and install again"
    if stale:
        advice = f"remove {', '.join(map(str, stale))}; or {advice}"
    fix: Callable[[], str] | None = partial(_remove, stale) if stale else None
    return Finding(Health.WARNING, "; ".join(texts), advice, fix)


def _by_name() -> dict[str, list[Distribution]]:
    """Every distribution that slime finds something in, by name, in the order of the import path."""
    found: dict[str, dict[Path, Distribution]] = defaultdict(dict)
    ours = {CORE}
    for each in importlib.metadata.distributions():
        name = _plain(each.name)
        # A folder may be on the import path twice.
        found[name].setdefault(_metadata_folder(each).resolve(), each)
        if any(point.group.startswith("slime.") for point in each.entry_points):
            ours.add(name)
    return {name: list(found[name].values()) for name in sorted(ours & found.keys())}


def _stale(those: list[Distribution]) -> Iterator[Path]:
    """Metadata in the old form, left beside an installation that pip made."""
    folders = [_metadata_folder(each) for each in those]
    if any(folder.suffix == ".dist-info" for folder in folders):
        yield from (folder for folder in folders if folder.suffix == ".egg-info")


def _remove(folders: list[Path]) -> str:
    for folder in folders:
        if folder.is_dir():
            shutil.rmtree(folder)
        else:
            folder.unlink()
    return f"removed {', '.join(map(str, folders))}"


def folder_of(distribution: Distribution) -> Path:
    """The folder of the import path that a distribution lies in."""
    return Path(str(distribution.locate_file("")))


def _metadata_folder(distribution: Distribution) -> Path:
    """The .dist-info or .egg-info of a distribution; the folder it lies in, where that is not known."""
    folder = getattr(distribution, "_path", None)  # the standard library offers no public name for it
    return Path(str(folder)) if folder is not None else folder_of(distribution)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
