"""The arguments of the SGLang that is installed, as settings (`[engine.sglang.server]`, `--sglang-*`), and of a router.

Neither is ever imported here. The releases that this package was made with are listed in it; any other is asked, once,
in its own Python, and its answer kept in the cache.

Example:

    model = server_model({"python": ".venv-sglang/bin/python"})         # fields mem_fraction_static, log_level, ...
    list(command_line(server_arguments(python), {"log_level": "info"}))     # ["--log-level", "info"]
    router_arguments("smg", python)                                     # or a ValueError: there is none
"""

import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from slime_core.roles import Argument, ArgumentKind, Settings, arguments_model
from slime_core.sample import Json
from slime_engine_sglang.installed import NEWEST, SglangWarning, installed_version

SHIPPED = Path(__file__).with_name(f"arguments-{NEWEST}.json")
"""Arguments of the release that this package was made with, as `tell_arguments.py` writes them."""
TELLS = Path(__file__).with_name("tell_arguments.py")
ASK_S = 300.0
"""Seconds in which it is imported, on a busy machine."""
NEWEST_ROUTER = ("smg", "1.13.0")
"""The router that is taken where none is named, in the release that this package was made with."""
ROUTER_SETTINGS = (
    Argument("use", ArgumentKind.TEXT, "Which router.", choices=("smg", "sglang-router")),
    Argument("python", ArgumentKind.TEXT, "Python that has it."),
)
"""Keys of its table that are not arguments."""
OWN_ARGUMENTS: Mapping[str, str] = {
    "model_path": "follows from hf_checkpoint",
    "model": "follows from hf_checkpoint",
    "host": "follows from where the launcher starts the server",
    "port": "follows from where the launcher starts the server",
    "tp_size": "follows from [engine.sglang] gpus",
    "tensor_parallel_size": "follows from [engine.sglang] gpus",
    "device": "follows from [engine.sglang] gpus",
    "enable_deterministic_inference": "follows from [engine.sglang] deterministic",
    "config": "would say the same in another file",
    "disaggregation_mode": "would have a request go through two servers, where each engine of a run is one",
    "nnodes": "follows from where the launcher starts the server, on one machine",
    "node_rank": "follows from where the launcher starts the server, on one machine",
    "api_key": "would have the server refuse the run's own requests, which carry none",
    "admin_api_key": "would have the server refuse the run's own requests, which carry none",
    "ssl_certfile": "would have the server speak another protocol than the run, which asks by HTTP",
    "ssl_keyfile": "would have the server speak another protocol than the run, which asks by HTTP",
}
"""Arguments of SGLang that follow from the run, or from another setting."""


def server_model(section: Mapping[str, Json]) -> type[Settings]:
    """The model of `[engine.sglang.server]`, given `[engine.sglang]` as it is written."""
    python = section.get("python")
    return _model(Path(python) if isinstance(python, str) else None)


@functools.cache
def _model(python: Path | None) -> type[Settings]:
    return arguments_model("ServerArguments", server_arguments(python))


@functools.cache
def server_arguments(python: Path | None) -> Sequence[Argument]:
    """Arguments of the SGLang in a Python; the shipped ones where it does not tell its own."""
    try:
        version = installed_version(python)
    except ValueError:
        version = None  # said where the setting is checked
    if python is None or version in (None, NEWEST):
        return _read(SHIPPED)
    try:
        return _read(_kept("sglang", python, version))
    except (OSError, subprocess.SubprocessError) as error:
        text = f"SGLang {version} in {python} does not tell its arguments ({error}): those of {NEWEST} are taken"
        warnings.warn(text, SglangWarning, stacklevel=2)
        return _read(SHIPPED)


def router_model(table: Mapping[str, Json]) -> type[Settings]:
    """The model of all that may be in `[engine.sglang.router]`, given the table as it is written."""
    use, python = table.get("use", NEWEST_ROUTER[0]), table.get("python")
    return _router_model(str(use), Path(python) if isinstance(python, str) else None)


@functools.cache
def _router_model(program: str, python: Path | None) -> type[Settings]:
    try:
        arguments = router_arguments(program, python)
    except ValueError:  # said where the setting is checked
        listed = TELLS.parent.glob(f"arguments-{program}-[0-9]*.json")
        arguments = _read(max(listed, default=listed_router(*NEWEST_ROUTER)))
    return arguments_model("RouterArguments", [*ROUTER_SETTINGS, *arguments])


@functools.cache
def router_arguments(program: str, python: Path | None) -> Sequence[Argument]:
    """What a router takes.

    Args:
        program: "smg" or "sglang-router".
        python: where it is installed; by default where this is.

    Raises:
        ValueError: it is not installed there, or does not tell.
    """
    python = python or Path(sys.executable)
    version = installed_version(python, program)
    if version is None:
        raise ValueError(f"there is no {program} in {python}: `{python} -m pip install {program}`")
    listed = listed_router(program, version)
    try:
        return _read(listed if listed.exists() else _kept(program, python, version))
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(f"{program} {version} in {python} does not tell its arguments: {error}") from None


def listed_router(program: str, version: str) -> Path:
    """The file that lists what a release of a router takes, if this package has it."""
    return TELLS.with_name(f"arguments-{program}-{version}.json")


def _kept(program: str, python: Path, version: str) -> Path:
    """The file with a program's arguments; the program is asked if there is none yet."""
    kept = _cache_folder() / f"{program}-arguments-{version}-{_digest(python)}.json"
    if not kept.exists():
        _ask(python, program, kept)
    return kept


def _ask(python: Path, program: str, kept: Path) -> None:
    """Have another Python import a program and write what it takes."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        draft = Path(folder, kept.name)
        command = [str(python), "-P", str(TELLS), str(draft), program]
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S, check=False, env=_environment())
        if not draft.exists():
            last = (done.stderr.strip() or "nothing was written").splitlines()[-1]
            raise OSError(last)
        draft.replace(kept)


def _environment() -> dict[str, str]:
    """This process's environment, without the variables that change what Python imports."""
    others = ("PYTHONPATH", "PYTHONHOME", "PYTHONSAFEPATH", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in others}


def _read(path: Path) -> Sequence[Argument]:
    told: list[dict[str, Json]] = json.loads(path.read_text("utf-8"))
    return tuple(_argument(each) for each in told)


def _argument(about: dict[str, Json]) -> Argument:
    kind, choices = ArgumentKind(about.pop("kind")), about.pop("choices", ())
    why_not = OWN_ARGUMENTS.get(str(about["name"]), "")
    return Argument(kind=kind, choices=tuple(choices), why_not=why_not, **about)  # type: ignore[arg-type]


def _cache_folder() -> Path:
    """`$XDG_CACHE_HOME/slime-core`, as the core's own."""
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".cache") / "slime-core"


def _digest(python: Path) -> str:
    return hashlib.sha256(str(python.absolute()).encode()).hexdigest()[:16]
