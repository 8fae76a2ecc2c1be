"""Imports code of the user's project: `./my.py` by path, `package.module` by name."""

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType

from slime_core.errors import PluginError, UnknownName, said_by


def import_project_module(text: str, root: Path | None = None) -> ModuleType:
    """The module that a run file or a command line names; a file is imported once per process.

    Modules are looked for beside the installed ones in `root` (by default the current directory), and a file's own
    directory is searched for what the file imports.

    Raises:
        UnknownName: there is no such file or module.
        PluginError: importing it raised.
    """
    try:
        directory = root or Path.cwd()
        with in_one_process(), redirect_stdout(sys.stderr):  # standard output is for what the user asked
            return _import_file(text, directory) if text.endswith(".py") else _import_name(text, directory)
    except (UnknownName, PluginError):
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"{text} cannot be imported: {describe(error)}") from error


def project_source(text: str, root: Path) -> Path | None:
    """The source file of an imported module of the project; None for one without."""
    if text.endswith(".py"):
        return (root / text).resolve()
    file = getattr(sys.modules.get(text), "__file__", None)
    return Path(file) if file else None


@contextmanager
def in_one_process() -> Iterator[None]:
    """Import in this block: if what is imported forks, and the child returns from the import, the child ends here."""
    own = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != own:
            os._exit(0)


def describe(error: BaseException) -> str:
    """Type, message and the innermost line of code that is not Python's import machinery, nor ours."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename[:1] != "<" and frame.filename != __file__
    ]
    at = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {said_by(error)}{at}"


def _import_file(text: str, directory: Path) -> ModuleType:
    path = (directory / text).resolve()
    if not path.is_file():
        raise UnknownName(f"no file {text}: looked for {path}")
    # The path is part of the name, so that two files called reward.py are two modules.
    name = f"slime_project_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"{text} cannot be imported: Python does not take it for a source file")
    _search_also(path.parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


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
    """Append a directory to the import path: last, so that it shadows nothing that is installed."""
    if str(directory) not in sys.path:
        sys.path.append(str(directory))
