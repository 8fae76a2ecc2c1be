"""Imports code of the user's project: `./my.py` by path, `package.module` by name."""

import importlib
import importlib.util
import os
import re
import socket
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from slime_core.errors import PluginError, UnknownName, said_by

_NAME = "slime_project_"


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


class _ProjectFiles(MetaPathFinder):
    """Finds modules by the names that `_name_of` gives to files, in every process that can read the file."""

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
    """Let this process import project files by their modules' names, which is how pickles name their classes."""
    if _PROJECT_FILES not in sys.meta_path:
        sys.meta_path.append(_PROJECT_FILES)


def _import_file(text: str, directory: Path) -> ModuleType:
    path = (directory / text).resolve()
    if not path.is_file():
        raise UnknownName(f"no file {text}: looked for {path}")
    find_project_files()
    return importlib.import_module(_name_of(path))


def _name_of(path: Path) -> str:
    """A module's name that holds the file's path: two files called reward.py are two modules, the same everywhere."""
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
    """Append a directory to the import path: last, so that it shadows nothing that is installed."""
    if str(directory) not in sys.path:
        sys.path.append(str(directory))
