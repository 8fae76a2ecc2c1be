"""What a resume checks and records: changed plugins and settings, cut records, the run's date, and the resume itself.

A resume with changed settings or plugins is refused unless the user accepts the change with its flag.

Example:

    check_records(checkpoint, folder.root)
    for accepted in check_changes(checkpoint, plan, train_steps=300): ...
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import cast

from slime_core.config import Plan, changed_plugins, default_settings
from slime_core.config.fit import Schedule
from slime_core.config.keys import OptimArgs
from slime_core.errors import CheckpointError
from slime_core.run.checkpoint import STATE, Checkpoint, list_checkpoints
from slime_core.run.ledger import check_lines
from slime_core.sample import Json
from slime_core.telemetry.metrics import LineLog

RESUMES = "resumes.jsonl"
"""Has a line for each resume; plots mark them."""
CHANGEABLE = frozenset({"save", "save_interval", "save_keep", "save_best", "async_save", "checkpoint_hf"}) | frozenset(
    {"num_rollout", "num_epoch", "step_timeout_s", "plugins"}
)
"""Keys that may differ in a resume, since they do not change earlier results. `derived_changes` compares values that
depend on them, and `changed_plugins` compares plugins."""
DERIVED = "lr_decay_iters"
"""Key whose default depends on the length of the run."""


def note_resume(run: Path, rollout_id: int) -> None:
    """Append a line for a resume from a checkpoint of `rollout_id` rollouts.

    Raises:
        RunFolderError: the file cannot be written.
    """
    line = {"schema_version": 1, "rollout_id": rollout_id, "time": time.time()}
    with LineLog(run / RESUMES) as log:
        log.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")


def check_records(checkpoint: Checkpoint, run: Path) -> None:
    """Check, before anything starts, that metrics.jsonl and ledger.jsonl contain everything up to a checkpoint.

    Raises:
        CheckpointError: one is missing, shorter than it was, or changed.
    """
    state = checkpoint.state()
    LineLog.check(run / "metrics.jsonl", state.metrics_position)
    if state.ledger:
        check_lines(run / "ledger.jsonl", state.ledger)


def run_day(save: Path, model: Path) -> date:
    """Return the date of the run in folder `save`, which may not exist.

    It is in the newest readable checkpoint, else in the checkpoint that contains `model`, else it is today.
    """
    days = (_day_of(path) for path in reversed(list_checkpoints(save / "checkpoints")))
    return next(filter(None, days), None) or model_day(model)


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

    The steps are optimizer steps of the whole run, by the checkpoint and by this start.
    """
    before, now = {**default_settings(), **before}, {**default_settings(), **now}
    old, new = before.get(DERIVED) or steps_before, now.get(DERIVED) or steps_now
    inputs_changed = (before.get(DERIVED), steps_before) != (now.get(DERIVED), steps_now)
    if inputs_changed and _schedule(before, steps_before) != _schedule(now, steps_now):
        yield (
            f"{DERIVED}: {old} -> {new}. The learning rate follows the length of the run; --lr-decay-iters {old} keeps "
            f"the schedule that it began with: the added steps then train at min_lr = {now['min_lr']}"
        )
    if before["save_interval"] != now["save_interval"] and now["update_weights_interval"] != 1:
        yield (
            f"save_interval: {before['save_interval']} -> {now['save_interval']}. Each save also publishes "
            "weights, so this changes when engines get them"
        )


def _schedule(values: Mapping[str, Json], steps: int) -> Schedule:
    keys = OptimArgs.model_validate({key: values[key] for key in OptimArgs.model_fields if key in values})
    return Schedule.of(keys, steps, cast(int, values["num_critic_only_steps"]))


def current_settings(plan: Plan) -> dict[str, Json]:
    """Return the configuration as a checkpoint stores it."""
    settings: dict[str, Json] = json.loads(json.dumps(plan.config.to_dict()))
    return settings


def check_changes(checkpoint: Checkpoint, plan: Plan, train_steps: int) -> Sequence[str]:
    """Compare plugins and settings with a checkpoint's; returns the changes that the user accepted.

    Raises:
        CheckpointError: something changed that the user did not accept.
    """
    state, run, now = checkpoint.state(), plan.config.run, current_settings(plan)
    steps_before = train_steps if state.train_steps is None else state.train_steps
    plugins = changed_plugins(state.plugins, plan)
    settings = [*changed_settings(state.config, now), *derived_changes(state.config, now, steps_before, train_steps)]
    back = f"Put them back (`slime resume {run.save}` reads them from run.toml, unless you edited it)"
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
