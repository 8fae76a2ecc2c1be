"""Making: what the demo writes before a run: models, by a process of their own that may import torch, and run files.

Example:

    make_directory("slime_local.demo.tiny:write_tiny_model", base / "init", task="word", seed=0)
    write_run_file(base / "run.toml", {"hf_checkpoint": str(base / "init"), "reward": {"use": "math"}})
"""

import importlib
import json
import shutil
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from slime_core.errors import ConfigError, RunFolderError
from slime_core.sample import Json

NO_TORCH = (
    "the demo trains with torch, which is not installed. Without a GPU: pip install torch --index-url "
    "https://download.pytorch.org/whl/cpu (the package index's own build for Linux brings some GB of CUDA libraries)"
)


def make_directory(target: str, directory: Path, **arguments: object) -> Path:
    """Have the function `module:name` write a directory, which is there once it is whole; returns it.

    Raises:
        ConfigError: there is no torch to make it with.
        RunFolderError: there is no place for it.
    """
    if find_spec("torch") is None:
        raise ConfigError(NO_TORCH)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=directory.parent) as beside:
            made = Path(beside) / "made"
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                pool.submit(_call, target, directory=made, **arguments).result()
            shutil.rmtree(directory, ignore_errors=True)
            made.rename(directory)
    except OSError as error:
        raise RunFolderError(f"cannot make {directory}: {error.strerror or error}") from None
    return directory


def _call(target: str, **arguments: object) -> None:
    module, _, name = target.partition(":")
    getattr(importlib.import_module(module), name)(**arguments)


def write_run_file(path: Path, values: Mapping[str, Json]) -> Path:
    """Write a run file that `slime train` reads, tables inline; returns its path.

    Raises:
        RunFolderError: it cannot be written.
    """
    return write_text(path, "".join(f"{key} = {_toml(value)}\n" for key, value in values.items()))


def write_text(path: Path, text: str) -> Path:
    """Write a file and the folders above it; returns its path.

    Raises:
        RunFolderError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RunFolderError(f"cannot write {path}: {error.strerror}") from None
    return path


def _toml(value: Json) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
