"""The release of SGLang or of a router in a Python, and its arguments as settings (`[engine.sglang.server]`).

Neither program is imported here. This package contains the arguments of the releases that it was tested with. Another
release runs once in its own Python to list its arguments, and the list is cached.

Example:

    installed_version(Path(".venv-sglang/bin/python"))                  # "0.5.23"; None: not installed
    check_version(version, "in .venv-sglang/bin/python")                # or a ValueError, or a warning
    model = server_model({"python": ".venv-sglang/bin/python"})         # fields mem_fraction_static, log_level, ...
    list(command_line(server_arguments(python), {"log_level": "info"}))     # ["--log-level", "info"]
    router_arguments("smg", python)                                     # or a ValueError: not installed
"""

import functools
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from slime_core.roles import Settings
from slime_core.sample import Json
from slime_engine_sglang.command_line import Argument, ArgumentKind, arguments_model

OLDEST, NEWEST = "0.5.9", "0.5.23"  # Range of releases whose HTTP API was tested
MASKS, SPANS, SESSIONS = (0, 5, 16), (0, 5, 19), (0, 5, 21)
"""First releases with `return_sampling_mask`, `weight_versions` and `/begin_weight_update`."""
VERSION_S = 20.0  # Seconds that a Python may take to report an installed version
IMPORT_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "PYTHONSAFEPATH", "VIRTUAL_ENV")
VERSION_SCRIPT = "import importlib.metadata as m; print('{0}', m.version('{0}'))"


class SglangWarning(UserWarning):
    """A possible problem with the installed SGLang."""


def installed_version(python: Path | None, program: str = "sglang") -> str | None:
    """Release of a program in a Python (None: this one), or None if missing. Raises ValueError: Python did not run."""
    if python is None or str(python) == sys.executable:
        try:
            return importlib.metadata.version(program)
        except importlib.metadata.PackageNotFoundError:
            return None
    python = Path(shutil.which(python) or python)
    # Look in site-packages next to the interpreter (virtual environments, conda): starting Python would cost 0.1 s.
    folders = sorted(python.parent.parent.glob("lib/python3*/site-packages"))
    start = program.replace("-", "_") + "-"
    found = [each for folder in folders for each in sorted(folder.glob(f"{start}*.dist-info"))]
    if found:
        return found[0].name.removeprefix(start).removesuffix(".dist-info")
    return None if folders and (python.parent.parent / "pyvenv.cfg").exists() else _query_version(python, program)


def _query_version(python: Path, program: str) -> str | None:
    question = VERSION_SCRIPT.format(program)
    try:
        ran = subprocess.run([python, "-c", question], capture_output=True, text=True, timeout=VERSION_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"{python} did not report its version of {program}: {error}") from None
    found = re.search(rf"^{program} (\S+)$", ran.stdout, re.MULTILINE)
    return found[1] if found else None


def check_version(version: str, where: str) -> None:
    """Warn about a release newer than the tested ones. Raises ValueError: the release is older than `OLDEST`."""
    number = _number(version)
    if number < _number(OLDEST):
        raise ValueError(
            f"SGLang {version} {where} is too old: this engine supports {OLDEST} to {NEWEST}. "
            f"Run `pip install sglang=={NEWEST}` there"
        )
    if number > _number(NEWEST):
        _warn_once(f"SGLang {version} {where} is newer than the releases that were tested, {OLDEST} to {NEWEST}")


@functools.cache
def _warn_once(text: str) -> None:
    """Warn once for each text: a replaced engine would repeat the warning."""
    warnings.warn(text, SglangWarning, stacklevel=3)


@dataclass(frozen=True, slots=True)
class Release:
    """Features that only some releases of SGLang have."""

    version: str  # Version number, such as "0.5.23"
    has_spans: bool  # Whether a response lists the weight version of each token
    has_sessions: bool  # Whether weights are sent between `/begin_weight_update` and `/end_weight_update`
    has_masks: bool  # Whether a response can list the candidates that top-p kept

    @classmethod
    def of(cls, version: str) -> Self:
        number = _number(version)
        return cls(version, number >= SPANS, number >= SESSIONS, number >= MASKS)


def _number(version: str) -> tuple[int, ...]:
    """Sort key of a release: 0.5.12.post1 as 0.5.12, 0.5.24rc1 as 0.5.24."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


NEWEST_RELEASE = Release.of(NEWEST)


SHIPPED = Path(__file__).with_name(f"arguments-{NEWEST}.json")
"""Arguments of the release that this package was tested with, as `list_arguments.py` writes them."""
LIST_SCRIPT = Path(__file__).with_name("list_arguments.py")
LIST_S = 300.0  # Seconds that the import of SGLang may take on a busy machine
BLOCKED_ARGUMENTS: Mapping[str, str] = {
    "model_path": "follows from hf_checkpoint",
    "model": "follows from hf_checkpoint",
    "host": "follows from where the launcher starts the server",
    "port": "follows from where the launcher starts the server",
    "tp_size": "follows from [engine.sglang] gpus",
    "tensor_parallel_size": "follows from [engine.sglang] gpus",
    "device": "follows from [engine.sglang] gpus",
    "enable_deterministic_inference": "follows from [engine.sglang] deterministic",
    "config": "would set arguments in another file",
    "disaggregation_mode": "needs two servers for each request, and an engine has one",
    "nnodes": "follows from the launcher, which starts each server on one machine",
    "node_rank": "follows from the launcher, which starts each server on one machine",
    "api_key": "would make the server refuse the run's requests, which have no key",
    "admin_api_key": "would make the server refuse the run's requests, which have no key",
    "ssl_certfile": "would make the server use HTTPS, and the run uses HTTP",
    "ssl_keyfile": "would make the server use HTTPS, and the run uses HTTP",
}  # Arguments of SGLang that users cannot set, and why: "it ..."


def server_model(section: Mapping[str, Json]) -> type[Settings]:
    """The settings model of `[engine.sglang.server]`, from the unvalidated table `[engine.sglang]`."""
    python = section.get("python")
    return _model(Path(python) if isinstance(python, str) else None)


@functools.cache
def _model(python: Path | None) -> type[Settings]:
    return arguments_model("ServerArguments", server_arguments(python))


@functools.cache
def server_arguments(python: Path | None) -> Sequence[Argument]:
    """Arguments of the SGLang in a Python, or this package's list if that SGLang cannot list them."""
    try:
        version = installed_version(python)
    except ValueError:
        version = None  # `check_python` reports this error
    if python is None or version in (None, NEWEST):
        return _read(SHIPPED)
    try:
        return _read(_cached_list("sglang", python, version))
    except (OSError, subprocess.SubprocessError) as error:
        text = f"SGLang {version} in {python} cannot list its arguments ({error}); using the arguments of {NEWEST}"
        warnings.warn(text, SglangWarning, stacklevel=2)
        return _read(SHIPPED)


@functools.cache
def router_arguments(program: str, python: Path | None) -> Sequence[Argument]:
    """Arguments of a router, "smg" or "sglang-router". Raises ValueError: not installed, or it cannot list them."""
    python = python or Path(sys.executable)
    version = installed_version(python, program)
    if version is None:
        raise ValueError(f"{program} is not installed in {python}. Run `{python} -m pip install {program}`")
    listed = router_arguments_file(program, version)
    try:
        return _read(listed if listed.exists() else _cached_list(program, python, version))
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(f"{program} {version} in {python} cannot list its arguments: {error}") from None


def router_arguments_file(program: str, version: str) -> Path:
    """Path of the file with the arguments of a router release; the file may not exist."""
    return LIST_SCRIPT.with_name(f"arguments-{program}-{version}.json")


def _cached_list(program: str, python: Path, version: str) -> Path:
    path = _cache_folder() / f"{program}-arguments-{version}-{_digest(python)}.json"
    if not path.exists():
        _write_list(python, program, path)
    return path


def _write_list(python: Path, program: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        draft = Path(folder, path.name)
        command = [str(python), "-P", str(LIST_SCRIPT), str(draft), program]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIST_S, check=False, env=environment_for(command[0])
        )
        if not draft.exists():
            last = (done.stderr.strip() or "it printed no error").splitlines()[-1]
            raise OSError(last)
        draft.replace(path)


def environment_for(python: str) -> dict[str, str]:
    """This process's environment; for another Python, without the variables that set this Python's import path."""
    left_out = () if python == sys.executable else IMPORT_VARIABLES
    return {name: value for name, value in os.environ.items() if name not in left_out}


def _read(path: Path) -> Sequence[Argument]:
    rows: list[dict[str, Json]] = json.loads(path.read_text("utf-8"))
    return tuple(_argument(each) for each in rows)


def _argument(about: dict[str, Json]) -> Argument:
    kind, choices = ArgumentKind(about.pop("kind")), about.pop("choices", ())
    blocked_because = BLOCKED_ARGUMENTS.get(str(about["name"]), "")
    return Argument(kind=kind, choices=tuple(choices), blocked_because=blocked_because, **about)  # type: ignore[arg-type]


def _cache_folder() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".cache") / "slime-core"


def _digest(python: Path) -> str:
    return hashlib.sha256(str(python.absolute()).encode()).hexdigest()[:16]
