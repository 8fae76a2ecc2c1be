"""Checkpoints on disk: their files and schemas, how to find and verify one, and what changed since it was saved.

A checkpoint is complete or absent. A damaged one is reported, and the previous one is used. A resume with changed
settings or plugins is refused unless the user accepts the change with its flag.

Example:

    checkpoints/rollout_000020/
        manifest.json    every file with its size and SHA-256
        state.json       data cursor, buffer, ledger, positions, plugin lock, config
        hf/              the model in HF format, unless checkpoint_hf = false
        optim/           the optimizer
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import cast

from slime_core.config import Plan, changed_plugins, default_settings
from slime_core.config.fit import Schedule
from slime_core.config.keys import OptimArgs
from slime_core.errors import CheckpointError, RunFolderError
from slime_core.outputs import check_tree, inside, nofollow, open_nofollow
from slime_core.run.ledger import SCHEMA_VERSION, Manifest, SavedFile, SavedState, first_problem
from slime_core.sample import Json

MANIFEST = "manifest.json"
STATE = "state.json"
MODEL = "hf"
OWN_DEPTH = 3
"""Path components of a checkpoint file inside the run folder, as in checkpoints/rollout_000020/state.json."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    path: Path
    """Its directory."""
    rollout_id: int
    """Number of rollouts that it contains."""

    def state(self) -> SavedState:
        """Return the driver's saved state.

        Raises:
            CheckpointError: the file is damaged or has another schema.
        """
        try:
            return SavedState.model_validate_json(_read(self.path, STATE))
        except (OSError, ValueError) as error:
            problem = first_problem(error) if isinstance(error, ValueError) else error.strerror
            raise CheckpointError(f"checkpoint {self.path} is damaged: {STATE}: {problem}") from None


def list_checkpoints(root: Path) -> list[Path]:
    """Return checkpoint directories, oldest first, without checks."""
    found = [(int(match[1]), path) for path in root.glob("rollout_*") if (match := _name(path))]
    return [path for _, path in sorted(found)]


def newest_checkpoint(root: Path, report: Callable[[str], None]) -> Checkpoint | None:
    """Return the newest undamaged checkpoint, and report each damaged one. None if there are no checkpoints.

    Raises:
        CheckpointError: all checkpoints are damaged.
    """
    paths = list_checkpoints(root)
    problems = []
    for path in reversed(paths):
        try:
            return verify(path)
        except CheckpointError as error:
            report(f"{error}; trying the one before it")
            problems.append(str(error))
    if problems:
        raise CheckpointError("no usable checkpoint: " + "; ".join(problems))
    return None


def verify(path: Path, contents: bool = True) -> Checkpoint:
    """Check every file of a checkpoint against its manifest; without `contents`, check only sizes.

    Raises:
        CheckpointError: a file is missing or differs; the message names it.
    """
    manifest, name = read_manifest(path), _name(path)
    rollout_id, files = manifest.rollout_id, manifest.files
    if STATE not in files or not name or int(name[1]) != rollout_id:
        raise CheckpointError(f"checkpoint {path} is damaged: its manifest, of rollout {rollout_id}, is not its own")
    for file, expected in files.items():
        with _of_checkpoint(path):
            inside(path, file)
        if not (path / file).is_file():
            raise CheckpointError(f"checkpoint {path} is damaged: {file} is missing")
        if (path / file).stat().st_size != expected.bytes or (contents and describe_file(path / file) != expected):
            raise CheckpointError(f"checkpoint {path} is damaged: {file} is not what was written")
    checkpoint = Checkpoint(path, rollout_id)
    if contents:
        checkpoint.state()
    return checkpoint


def read_manifest(path: Path) -> Manifest:
    """A checkpoint's manifest.

    Raises:
        CheckpointError: it cannot be read.
    """
    try:
        found = json.loads(_read(path, MANIFEST))
        version = found.get("schema_version") if isinstance(found, dict) else None
        if isinstance(version, int) and version != SCHEMA_VERSION:
            raise CheckpointError(
                f"checkpoint {path} has schema version {version}, and this release reads {SCHEMA_VERSION}"
            )
        return Manifest.model_validate(found)
    except (OSError, ValueError, RecursionError) as error:
        problem = first_problem(error) if isinstance(error, ValueError) else getattr(error, "strerror", error)
        raise CheckpointError(f"checkpoint {path} is damaged: its manifest cannot be read ({problem})") from None


def _read(path: Path, name: str) -> bytes:
    with _of_checkpoint(path), open_nofollow(path / name, OWN_DEPTH) as file:
        return file.read()


@contextmanager
def _of_checkpoint(path: Path) -> Iterator[None]:
    try:
        yield
    except RunFolderError as error:
        raise CheckpointError(f"checkpoint {path} is damaged: {error}") from None


def model_of(path: Path) -> Path:
    """Return the model directory of a checkpoint, in HF format.

    Raises:
        CheckpointError: the checkpoint has no model, or links lead out of it.
    """
    with _of_checkpoint(path):
        check_tree(nofollow(path / MODEL, OWN_DEPTH))
    if (path / MODEL / "config.json").is_file():
        return path / MODEL
    raise CheckpointError(
        f"checkpoint {path} has no model in HF format: its run has checkpoint_hf = false. It continues with `slime "
        "resume`; for the model, set checkpoint_hf = true and save one more, or give a model with --hf-checkpoint"
    )


def describe_file(file: Path) -> SavedFile:
    """Return a file's entry in the manifest."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
    return SavedFile(bytes=file.stat().st_size, sha256=digest.hexdigest())


def remove_checkpoint(path: Path, nameless: Path | None = None) -> None:
    """Rename a checkpoint to `nameless`, then remove its files; if killed in between, no damaged checkpoint remains."""
    nameless = nameless or path.with_name(f".{path.name}.old.tmp")
    shutil.rmtree(nameless, ignore_errors=True)  # left by an earlier kill
    with suppress(OSError):
        path.rename(nameless)
        shutil.rmtree(nameless)


def clear_unfinished(root: Path) -> None:
    """Remove the unfinished directories of a killed process; none of them has a checkpoint's name."""
    for stale in root.glob(".rollout_*.tmp"):
        shutil.rmtree(stale)


def _name(path: Path) -> re.Match[str] | None:
    """Match a checkpoint directory's name, with its number."""
    return re.fullmatch(r"rollout_(\d+)", path.name) if path.is_dir() else None


def run_day(save: Path, model: Path) -> date:
    """Return the date of a run: from its newest readable checkpoint, else from the checkpoint of `model`, else today.

    Args:
        save: the run folder; it may not exist.
        model: the model directory.
    """
    for path in reversed(list_checkpoints(save / "checkpoints")):
        if day := _day_of(path):
            return day
    return model_day(model)


def model_day(model: Path) -> date:
    """Return the date of the checkpoint that contains a model directory, else today."""
    folder = model.resolve().parent
    return (_day_of(folder) if (folder / STATE).is_file() else None) or today()


@cache
def today() -> date:
    """Return the local date at the first call, so that one process reads all prompts with one date."""
    return datetime.now().astimezone().date()


def _day_of(path: Path) -> date | None:
    try:
        return Checkpoint(path, 0).state().day
    except CheckpointError:  # reported when it is loaded
        return None


# Settings and plugins that changed since a checkpoint. A resume refuses them unless the user accepts them by a flag.

CHANGEABLE = frozenset({"save", "save_interval", "save_keep", "save_best", "async_save", "checkpoint_hf"}) | frozenset(
    {"num_rollout", "num_epoch", "step_timeout_s", "plugins"}
)
"""Keys that may differ in a resume, since they do not change earlier results. `derived_changes` compares values that
depend on them, and `changed_plugins` compares plugins."""
DERIVED = "lr_decay_iters"
"""Key whose default depends on the length of the run."""


def changed_settings(before: Mapping[str, Json], now: Mapping[str, Json]) -> list[str]:
    """Return a line for each changed key that affects the run's results, without `derived_changes`.

    A key that an older version of slime-core did not have counts as having its default.
    """
    before, now = {**default_settings(), **before}, {**default_settings(), **now}
    keys = sorted((before.keys() | now.keys()) - CHANGEABLE - {DERIVED})
    return [f"{key}: {before.get(key)!r} -> {now.get(key)!r}" for key in keys if before.get(key) != now.get(key)]


def derived_changes(
    before: Mapping[str, Json], now: Mapping[str, Json], steps_before: int, steps_now: int
) -> Iterator[str]:
    """Yield a line for each changed value that depends on `CHANGEABLE` keys and affects the run's results.

    Args:
        before: settings in the checkpoint.
        now: settings of this start.
        steps_before: optimizer steps of the whole run, from the checkpoint.
        steps_now: optimizer steps of the whole run, from this start.
    """
    before, now = {**default_settings(), **before}, {**default_settings(), **now}
    old, new = before.get(DERIVED) or steps_before, now.get(DERIVED) or steps_now
    has_others = (before.get(DERIVED), steps_before) != (now.get(DERIVED), steps_now)
    if has_others and _schedule(before, steps_before) != _schedule(now, steps_now):
        yield (
            f"{DERIVED}: {old} -> {new}. The learning rate follows the length of the run; --lr-decay-iters {old} keeps "
            f"the schedule that it began with: the added steps then train at min_lr = {now['min_lr']}"
        )
    if before["save_interval"] != now["save_interval"] and now["update_weights_interval"] != 1:
        yield (
            f"save_interval: {before['save_interval']} -> {now['save_interval']}. Each save publishes the weights, and "
            f"update_weights_interval = {now['update_weights_interval']} does so less often"
        )


def _schedule(values: Mapping[str, Json], steps: int) -> Schedule:
    keys = OptimArgs.model_validate({key: values[key] for key in OptimArgs.model_fields if key in values})
    return Schedule.of(keys, steps, cast(int, values["num_critic_only_steps"]))


def saved_settings(plan: Plan) -> dict[str, Json]:
    """Return the configuration as a checkpoint stores it."""
    settings: dict[str, Json] = json.loads(json.dumps(plan.config.to_dict()))
    return settings


def check_changes(checkpoint: Checkpoint, plan: Plan, train_steps: int) -> Sequence[str]:
    """Compare plugins and settings with a checkpoint's; returns the changes that the user accepted.

    Args:
        checkpoint: the one to continue from.
        plan: plan of this start.
        train_steps: optimizer steps of the whole run.

    Raises:
        CheckpointError: something changed that the user did not accept.
    """
    state, run = checkpoint.state(), plan.config.run
    plugins = changed_plugins(state.plugins, plan)
    now = saved_settings(plan)
    steps_before = train_steps if state.train_steps is None else state.train_steps
    settings = [*changed_settings(state.config, now), *derived_changes(state.config, now, steps_before, train_steps)]
    back = f"Put them back (`slime resume {run.save}` takes those of run.toml, unless you edited it)"
    if problems := [
        f"checkpoint {checkpoint.path} was made with other {what}:\n  " + "\n  ".join(changed) + "\n"
        f"{mend}, pass --accept-changed-{what} to go on with these, or start a new run with another --save."
        for what, changed, accepted, mend in (
            ("plugins", plugins, run.accept_changed_plugins, "Install those versions again"),
            ("settings", settings, run.accept_changed_settings, back),
        )
        if changed and not accepted
    ]:
        raise CheckpointError("\n".join(problems))
    return [f"changed since the checkpoint, and accepted: {each}" for each in (*plugins, *settings)]
