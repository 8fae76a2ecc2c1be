"""SlimeRunner: create, check, dry-run, train, resume and stop a run, by one call each.

Example:

    runner = SlimeRunner(exp_id="math", model_dir="models/tiny", data_path="train.jsonl", reward="math", num_gpus=0)
    print(runner.dry_run().run_file)
    runner.train(num_rollout=10).rewards
"""

import io
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

from ruamel.yaml import YAML

from slime_compat.models import check_model_type
from slime_compat.runner.fields import IGNORED_FIELDS, RunnerFields, run_file_keys
from slime_compat.runner.process import (
    STATUS,
    Outcome,
    ProcessState,
    TrainResult,
    read_process,
    read_result,
    run_logged,
)
from slime_compat.yaml_file import read_fields
from slime_core.config import Installed, write_toml
from slime_core.errors import ConfigError, SlimeError
from slime_core.outputs import is_run_folder, refuse_occupied
from slime_core.sample import Json

LAST_LINES = 15
BAD_INPUT = 2


@dataclass(frozen=True, slots=True)
class DryRun:
    """The run file and the command that train() would use."""

    run_file: str
    """The run file, as TOML; values from the environment stay `$env:NAME`."""
    command: tuple[str, ...]
    """The command, run without a shell; values from the environment stay `$env:NAME`."""
    environment: Mapping[str, str]
    """Variables added to this process's environment."""
    notes: tuple[str, ...]
    """Fields that are set but have no effect here."""


class SlimeRunner(RunnerFields):
    """A run from Python."""

    @classmethod
    def from_yaml(cls, path: str | Path) -> Self:
        """A runner from a YAML or TOML file of its fields; `$env:NAME` is read from the environment.

        Raises:
            ConfigError: the file does not exist, is empty, or has invalid fields.
        """
        values = read_fields(Path(path))
        if not values:
            raise ConfigError(f"{path} is empty: it needs exp_id, model_dir and data_path, such as `exp_id: first`")
        try:
            return cls(**cast("dict[str, Any]", values))
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    def to_yaml(self) -> str:
        """The given fields as YAML for `from_yaml`; values from the environment stay `$env:NAME`."""
        given = {name: value for name, value in self.as_written().items() if name in self.model_fields_set}
        text = io.StringIO()
        YAML(typ="safe", pure=True).dump(given, text)
        return text.getvalue()

    def dry_run(self, num_rollout: int = 1) -> DryRun:
        """The run file and the command of train(); needs no plugins or GPUs, starts nothing and reads no file.

        Raises:
            ConfigError: `num_rollout` is invalid.
        """
        keys = self._keys(num_rollout)
        notes = tuple(f"{name}: {why}" for name, why in IGNORED_FIELDS.items() if name in self.model_fields_set)
        return DryRun(write_toml(keys), tuple(self._command("train")), self._environment(), notes)

    def train(self, num_rollout: int = 1) -> TrainResult:
        """Train until the run has `num_rollout` rollouts, continuing an existing run, and return the result.

        Raises:
            ConfigError: the fields are invalid; nothing was started or trained.
            SlimeError: the run failed.
        """
        keys = self._keys(num_rollout)
        self._check_gateway()
        if self.model_type is not None:
            check_model_type(self.model_type, self.model_dir)
        if not self.extra_flags:  # extra flags may correct the keys
            Installed().check(keys)
        self._refuse_second()
        if not self._process_file.exists() and not is_run_folder(self.folder):
            refuse_occupied(f"exp_id = {self.exp_id!r}", self._file)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(write_toml(keys), "utf-8")
        return self._run("train")

    def resume(self) -> TrainResult:
        """Continue a stopped run to its planned end; raises the same errors as train()."""
        if not self.folder.exists():
            raise ConfigError(f"there is no run in {self.folder} to resume; train(num_rollout=…) starts one")
        self._refuse_second()
        return self._run("resume")

    def status(self) -> TrainResult:
        """The run's current state; callable from any process."""
        return read_result(self.folder, self._outcome(read_process(self._process_file)))

    def stop(self) -> bool:
        """Request that the current run finish its step, save and end; False if none is running."""
        process = read_process(self._process_file)
        return process is not None and process.stop()

    def logs(self) -> str:
        """Output of the run's processes so far."""
        return self._log.read_text("utf-8", "replace") if self._log.is_file() else ""

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.run_dir / self.exp_id

    @property
    def _file(self) -> Path:
        return self._sibling(".toml")

    @property
    def _log(self) -> Path:
        return self._sibling(".log")

    @property
    def _process_file(self) -> Path:
        return self._sibling(".process.json")

    def _sibling(self, suffix: str) -> Path:
        return self.folder.with_name(self.folder.name + suffix)

    def _keys(self, num_rollout: int) -> dict[str, Json]:
        _check_count(num_rollout)
        return run_file_keys(self, num_rollout)

    def _check_gateway(self) -> None:
        is_in_aws = self.agent_runtime_arn is not None and self.acr_endpoint_url is None
        if is_in_aws and self.gateway_public_url is None:
            raise ConfigError(
                f'a runtime in AWS cannot reach {self.gateway_host}: set gateway_host="0.0.0.0" and '
                f'gateway_public_url="http://ADDRESS:{self.gateway_port or 9090}", with an address of this machine in '
                "the runtime's network. If the runtime is on this machine, set acr_endpoint_url instead"
            )

    def _command(self, command: str) -> list[str]:
        flags = cast("list[str]", self.as_written()["extra_flags"])
        arguments = [str(self._file), *flags] if command == "train" else [str(self.folder)]
        return [sys.executable, "-m", "slime_core", command, *arguments]

    def _environment(self) -> dict[str, str]:
        if self.cuda_home is None:
            return {}
        folders = {"PATH": self.cuda_home / "bin", "LD_LIBRARY_PATH": self.cuda_home / "lib64"}
        before = {name: os.environ.get(name, "") for name in folders}
        paths = {name: f"{folder}{os.pathsep}{before[name]}".rstrip(os.pathsep) for name, folder in folders.items()}
        return {"CUDA_HOME": str(self.cuda_home), **paths}

    def _refuse_second(self) -> None:
        process = read_process(self._process_file)
        if process is not None and self._outcome(process) is Outcome.RUNNING:
            raise ConfigError(f"process {process.pid} already trains {self.folder}; stop() ends it")

    def _run(self, command: str) -> TrainResult:
        begin = self._log.stat().st_size if self._log.is_file() else 0
        whole = self._command(command)
        environment = {**os.environ, **self._environment()}
        status = run_logged(whole, environment, self._log, self._process_file)
        outcome = self._outcome(read_process(self._process_file))
        if outcome in STATUS.values():
            return read_result(self.folder, outcome)
        last = "\n".join(self._log.read_bytes()[begin:].decode("utf-8", "replace").splitlines()[-LAST_LINES:])
        kind = ConfigError if status == BAD_INPUT else SlimeError
        raise kind(f"slime {whole[3]} ended with exit code {status}; {self._log} has its output, which ends:\n{last}")

    def _outcome(self, process: ProcessState | None) -> Outcome:
        if process is None:
            return Outcome.NEW
        if process.status in STATUS:
            return STATUS[process.status]
        return Outcome.RUNNING if process.is_running else Outcome.FAILED


def _check_count(num_rollout: object) -> None:
    if isinstance(num_rollout, bool) or not isinstance(num_rollout, int) or num_rollout < 1:
        raise ConfigError(f"num_rollout = {num_rollout!r}: expected a whole number of at least 1")
