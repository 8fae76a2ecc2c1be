"""Finds the installed plugins and selects the ones that a `PluginSet` allows, from package metadata alone.

Example:

    for candidate in installed_candidates():
        print(candidate.name, candidate.dist, candidate.version)        # from metadata; nothing is imported
"""

import enum
import importlib
import importlib.metadata
import importlib.util
import os
import re
import socket
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from slime_core.catalog.packages import CORE, DEFAULTS, install_advice
from slime_core.errors import ConfigError, PluginError, UnknownName, did_you_mean, error_text
from slime_core.roles import PluginSet


class PluginWarning(UserWarning):
    """A plugin failed to load; its choices are unavailable."""


class PluginState(enum.Enum):
    """Result of discovery for a plugin."""

    LOADED = "loaded"
    """Its choices and hooks are in use."""
    FAILED = "failed"
    """Its code raised, or it breaks a rule of the catalog."""
    EXCLUDED = "excluded"
    """The user excluded it; it was not imported."""
    UNKNOWN = "unknown"
    """It is installed but was not imported."""


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """One plugin: its identity, and the result of discovery."""

    name: str
    """Name of its entry point, or of the module for a plugin of the project."""
    dist: str
    """The distribution that contains it; empty for a plugin of the project."""
    version: str
    """The distribution's version; empty for a plugin of the project."""
    origin: str
    """The import target: the entry point's value, or the module as the user wrote it."""
    load: Callable[[], object] = field(repr=False, compare=False)
    """Imports the plugin."""
    state: PluginState = PluginState.UNKNOWN
    """Result of discovery."""
    detail: str = ""
    """What is wrong and how to fix it; empty if loaded."""
    required: bool = False
    """Whether a run cannot do without it."""

    @property
    def plugin(self) -> str:
        """Qualifier of its choices, `plugin` in `plugin/name`."""
        return self.dist or self.name

    @property
    def title(self) -> str:
        """The plugin and its version."""
        return f"{self.plugin} {self.version}".rstrip()

    @property
    def failed(self) -> bool:
        """Whether it failed to load."""
        return self.state is PluginState.FAILED

    def with_state(self, state: PluginState, detail: str = "") -> "PluginStatus":
        """The same plugin in another state."""
        return replace(self, state=state, detail=detail)

    def __str__(self) -> str:
        what = f"{self.state.value}: {self.detail}" if self.detail else self.state.value
        return f"plugin {self.title} ({self.origin}): {what}"


# Imports of code in the user's project: `./my.py` by path, `package.module` by name.

_NAME = "slime_project_"


def import_project_module(text: str, root: Path | None = None) -> ModuleType:
    """Import the module that a run file or a command line names; each file is imported once per process.

    Modules are searched in `root` (default: the current directory) in addition to installed ones. For a file's
    imports, its own directory is searched, too.

    Raises:
        UnknownName: the file or module does not exist.
        PluginError: importing it raised.
    """
    try:
        directory = root or Path.cwd()
        with redirect_stdout(sys.stderr):  # standard output is for what the user asked
            return _import_file(text, directory) if text.endswith(".py") else _import_name(text, directory)
    except (UnknownName, PluginError):
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"{text} cannot be imported: {describe(error)}") from error


def project_source(text: str, root: Path) -> Path | None:
    """Source file of an imported module of the project; None if it has none."""
    if text.endswith(".py"):
        return (root / text).resolve()
    file = getattr(sys.modules.get(text), "__file__", None)
    return Path(file) if file else None


def describe(error: BaseException) -> str:
    """Type and message of an error, and its innermost line of code outside Python's import machinery and ours."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename[:1] != "<" and frame.filename != __file__
    ]
    at = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error_text(error)}{at}"


class _ProjectFiles(MetaPathFinder):
    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if not fullname.startswith(_NAME):
            return None
        file = Path(os.fsdecode(bytes.fromhex(fullname.rpartition("_")[2])))
        if not file.is_file():
            raise PluginError(f"no file {file} on {socket.gethostname()}: every machine of a run needs the project")
        _search_also(file.parent)
        return importlib.util.spec_from_file_location(fullname, file)


_PROJECT_FILES = _ProjectFiles()


def find_project_files() -> None:
    """Let this process import project files by module name. Pickles refer to classes by that name."""
    if _PROJECT_FILES not in sys.meta_path:
        sys.meta_path.append(_PROJECT_FILES)


def _import_file(text: str, directory: Path) -> ModuleType:
    path = (directory / text).resolve()
    if not path.is_file():
        raise UnknownName(f"no file {text}: looked for {path}")
    find_project_files()
    return importlib.import_module(_name_of(path))


def _name_of(path: Path) -> str:
    return f"{_NAME}{re.sub(r'[^A-Za-z0-9]', '_', path.stem)}_{os.fsencode(path).hex()}"


def _import_name(text: str, directory: Path) -> ModuleType:
    _search_also(directory)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(text)
    except ModuleNotFoundError as error:
        if error.name is not None and (text == error.name or text.startswith(f"{error.name}.")):
            raise UnknownName(f"no module {text!r}: looked in {directory} and among what is installed") from None
        raise


def _search_also(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.append(str(directory))


GROUP = "slime.plugins"
"""The entry-point group."""
ENTRY_POINTS = "entry_points.txt"


def normalize(name: str) -> str:
    """Normalized name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_candidates() -> list[PluginStatus]:
    """Every entry point of the group: the core's first, then by distribution and name."""
    try:
        candidates = list(map(_of_entry, importlib.metadata.entry_points(group=GROUP)))
    except Exception:  # any package may have a malformed entry_points.txt; Python does not say which
        candidates = [each for dist in importlib.metadata.distributions() for each in _of_distribution(dist)]
    return sorted(candidates, key=lambda each: (each.dist != CORE, each.dist, each.name, each.origin))


def _of_entry(entry: importlib.metadata.EntryPoint) -> PluginStatus:
    dist, version = _identity(entry.dist) if entry.dist else (entry.module, "")
    return PluginStatus(entry.name, dist, version, entry.value, entry.load)


def _of_distribution(dist: importlib.metadata.Distribution) -> list[PluginStatus]:
    try:
        return list(map(_of_entry, dist.entry_points.select(group=GROUP)))
    except Exception as error:
        if GROUP not in (dist.read_text(ENTRY_POINTS) or ""):
            return []
        why = f"its {ENTRY_POINTS} cannot be read ({error}): install it again"
        name, version = _identity(dist)
        return [PluginStatus(name, name, version, ENTRY_POINTS, partial(_refuse, why))]


def _refuse(why: str) -> object:
    raise PluginError(why)


def _identity(dist: importlib.metadata.Distribution) -> tuple[str, str]:
    # Read once: `dist.name` and `dist.version` each parse the whole file, a sixth of the time of discovery.
    about = dist.metadata
    if "Name" in about:
        return normalize(about["Name"]), about["Version"]
    name, _, version = Path(str(getattr(dist, "_path", "unknown"))).stem.partition("-")
    return normalize(name), version


def project_candidates(modules: Iterable[str], root: Path | None) -> list[PluginStatus]:
    """Plugin modules of the project, in the given order; relative paths start at `root`."""
    return [
        PluginStatus(text, "", "", text, partial(import_project_module, text, root), required=True) for text in modules
    ]


def is_plugin_module(text: str) -> bool:
    """Whether a plugin's name is a module of the project, `./my_plugin.py` or `package.my_plugin`."""
    return "." in text or "/" in text


# Selection: which installed plugins a `PluginSet` loads, and in which order.

VARIABLE = "SLIME_PLUGINS"
"""Environment variable with an allow-list: plugin names, comma-separated."""
_KEYS = {
    "only": f"{VARIABLE} or [plugins] only",
    "without": "--no-plugin or [plugins] without",
    "require": "--plugin or [plugins] require",
}
"""The user's spelling of each field of `PluginSet`."""


def allowed_by_environment(environment: Mapping[str, str] = os.environ) -> tuple[str, ...] | None:
    """Plugins that SLIME_PLUGINS allows; None if it is not set. If empty, it allows only the core's own plugin."""
    text = environment.get(VARIABLE)
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def select_plugins(wanted: PluginSet) -> tuple[PluginStatus, ...]:
    """Plugins to load, in order, with modules of the project last, then excluded ones. Imports nothing.

    SLIME_PLUGINS is the default of `wanted.only`.

    Raises:
        UnknownName: `wanted` names a plugin that is not installed.
        ConfigError: `wanted` contradicts itself, or a name matches several plugins.
    """
    installed = installed_candidates()
    without, require = (_resolve(name, getattr(wanted, name), installed) for name in ("without", "require"))
    allowed = allowed_by_environment() if wanted.only is None else wanted.only
    only = None if allowed is None else _add_requirements(_resolve("only", allowed, installed), installed)
    _refuse_contradictions(without, require, only, allowed or ())
    core, defaults = ([each for each in installed if each.dist in dists] for dists in ((CORE,), DEFAULTS))
    ordered = dict.fromkeys([*core, *require, *(installed if only is None else [*only, *defaults])])
    candidates = [each for each in ordered if each not in without]
    excluded = []
    for each in installed:
        if each not in candidates:
            why = f"left out ({_KEYS['without']})" if each in without else f"not in the list of {_ALLOW_LIST}"
            excluded.append(each.with_state(PluginState.EXCLUDED, why))
    modules = project_candidates(wanted.modules, wanted.root or Path.cwd())
    return (*(replace(each, required=each in require) for each in candidates), *modules, *excluded)


_ALLOW_LIST = f"what to load ({_KEYS['only']})"


def _refuse_contradictions(
    without: Sequence[PluginStatus],
    require: Sequence[PluginStatus],
    only: Sequence[PluginStatus] | None,
    allowed: Sequence[str],
) -> None:
    for each in without:
        if each.dist == CORE:
            raise ConfigError(f"{CORE} cannot be left out ({_KEYS['without']}): every run needs what it offers")
        for field_name, named in (("require", require), ("only", only or ())):
            if each in named:
                raise ConfigError(
                    f"plugin {each.plugin} is both asked for ({_KEYS[field_name]}) and left out "
                    f"({_KEYS['without']}): remove one"
                )
    for each in require:
        if only is not None and each not in only and each.dist not in DEFAULTS:
            raise ConfigError(
                f"plugin {each.plugin} is asked for ({_KEYS['require']}), but not in the list of {_ALLOW_LIST}: "
                f"{', '.join(allowed) or 'nothing'}"
            )


def _add_requirements(named: Sequence[PluginStatus], installed: Sequence[PluginStatus]) -> list[PluginStatus]:
    found = list(named)
    for plugin in found:  # which grows
        try:
            lines = importlib.metadata.requires(plugin.dist) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        own = (match[0] for each in lines if "extra ==" not in each and (match := re.match(r"[\w.-]+", each)))
        required = set(map(normalize, own))
        found += [each for each in installed if each.dist in required and each not in found]
    return found


def _resolve(field: str, names: Iterable[str], installed: Sequence[PluginStatus]) -> list[PluginStatus]:
    return list(dict.fromkeys(each for name in names for each in _matches(field, name, installed)))


def _matches(field: str, name: str, installed: Sequence[PluginStatus]) -> list[PluginStatus]:
    if of_dist := [each for each in installed if each.dist == normalize(name)]:
        return of_dist
    of_entry = [each for each in installed if normalize(each.name) == normalize(name)]
    if len(of_entry) > 1:
        dists = " and ".join(each.dist for each in of_entry)
        raise ConfigError(f"plugin {name!r} ({_KEYS[field]}) is an entry point of {dists}: name the distribution")
    if not of_entry:
        raise UnknownName(_not_installed(field, name, installed))
    return of_entry


def _not_installed(field: str, name: str, installed: Sequence[PluginStatus]) -> str:
    known = [spelling for each in installed for spelling in (each.dist, each.name)]
    listed = ", ".join(dict.fromkeys(each.title for each in installed)) or "none"
    text = f"no plugin {name!r} ({_KEYS[field]}).{did_you_mean(name, known)} Installed: {listed}."
    if Path(f"{name}.py").is_file():
        text += f" For the file in this directory write ./{name}.py."
    if field == "without":
        return f"{text} Modules of the project load only where --plugin or [plugins] modules names them."
    return f"{text} {install_advice(normalize(name))}"
