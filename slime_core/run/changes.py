"""Changes: what is another one now than when a run was saved, named; refused, unless the user accepts it by its flag.

Example:

    for note in check_changes(checkpoint, plan):        # raises CheckpointError for what was not accepted
        display.message(note)
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from slime_core.config import Plan, changed_plugins, default_settings
from slime_core.config.families import OptimArgs
from slime_core.errors import CheckpointError
from slime_core.run.checkpoint import Checkpoint
from slime_core.sample import Json
from slime_core.train.schedule import Schedule

CHANGEABLE = frozenset(
    {
        "save",
        "save_interval",
        "save_keep",
        "save_best",
        "async_save",
        "checkpoint_hf",
        "num_rollout",
        "num_epoch",
        "step_timeout_s",
        "plugins",
    }
)
"""Keys that may differ when a run is continued: they do not change what was computed so far. What is derived from them
is compared in `derived_changes`, and the plugins that a run took something from with the checkpoint's."""
DERIVED = "lr_decay_iters"
"""Its default is derived from the length of the run."""


def changed_settings(before: Mapping[str, Json], now: Mapping[str, Json]) -> list[str]:
    """A line about each key that differs and that changes what a run computes, `derived_changes` left out.

    A key that was not there before, written by a version of slime-core that did not have it, was as its default is.
    """
    before, now = {**default_settings(), **before}, {**default_settings(), **now}
    keys = sorted((before.keys() | now.keys()) - CHANGEABLE - {DERIVED})
    return [f"{key}: {before.get(key)!r} -> {now.get(key)!r}" for key in keys if before.get(key) != now.get(key)]


def derived_changes(
    before: Mapping[str, Json], now: Mapping[str, Json], steps_before: int, steps_now: int
) -> Iterator[str]:
    """A line about each value that is derived from `CHANGEABLE` keys, differs, and changes what a run computes.

    Args:
        before: settings of the checkpoint.
        now: settings of this start.
        steps_before: optimizer steps of the whole run, as the checkpoint knows it.
        steps_now: the same of this start.
    """
    before, now = {**default_settings(), **before}, {**default_settings(), **now}
    old, new = (
        Schedule.of(_optim(values), steps, cast(int, values["num_critic_only_steps"]))
        for values, steps in ((before, steps_before), (now, steps_now))
    )
    same = {key for key in OptimArgs.model_fields if before.get(key) == now.get(key)}
    if old.decay != new.decay and "lr_decay_style" in same:
        yield (
            f"{DERIVED}: {old.decay} -> {new.decay}. The learning rate ({now['lr_decay_style']}) follows the length of "
            f"the run; --lr-decay-iters {old.decay} keeps the schedule that it began with: the added steps then train "
            f"at min_lr = {now['min_lr']}"
        )
    if old.critic_decay != new.critic_decay:
        yield f"{DERIVED} of the critic: {old.critic_decay} -> {new.critic_decay}"
    if old.warmup != new.warmup and {"lr_warmup_iters", "lr_warmup_fraction"} <= same:
        yield (
            f"lr_warmup_fraction: warm-up of {old.warmup} -> {new.warmup} optimizer steps; --lr-decay-iters "
            f"{before.get(DERIVED) or steps_before} keeps the {old.warmup}"
        )
    if before["save_interval"] != now["save_interval"] and now["update_weights_interval"] != 1:
        yield (
            f"save_interval: {before['save_interval']} -> {now['save_interval']}. Each save publishes the weights, and "
            f"update_weights_interval = {now['update_weights_interval']} does so less often"
        )


def _optim(values: Mapping[str, Json]) -> OptimArgs:
    return OptimArgs.model_validate({key: values[key] for key in OptimArgs.model_fields if key in values})


def saved_settings(plan: Plan) -> dict[str, Json]:
    """The configuration, as a checkpoint keeps it."""
    settings: dict[str, Json] = json.loads(json.dumps(plan.config.to_dict()))
    return settings


def check_changes(checkpoint: Checkpoint, plan: Plan, train_steps: int) -> Sequence[str]:
    """Compare plugins and settings with those that a checkpoint was made with; returns what changed and was accepted.

    Args:
        checkpoint: what is continued.
        plan: of this start.
        train_steps: optimizer steps of the whole run.

    Raises:
        CheckpointError: something changed that was not accepted.
    """
    state, run = checkpoint.state(), plan.config.run
    plugins = changed_plugins(state.plugins, plan)
    now = saved_settings(plan)
    steps_before = train_steps if state.train_steps is None else state.train_steps
    settings = [*changed_settings(state.config, now), *derived_changes(state.config, now, steps_before, train_steps)]
    problems = []
    if plugins and not run.accept_changed_plugins:
        problems.append(
            f"checkpoint {checkpoint.path} was made with other plugins:\n  " + "\n  ".join(plugins) + "\n"
            "Install those versions again, pass --accept-changed-plugins to go on with these, or start a new run with "
            "another --save."
        )
    if settings and not run.accept_changed_settings:
        problems.append(
            f"checkpoint {checkpoint.path} was made with other settings:\n  " + "\n  ".join(settings) + "\n"
            f"Put them back into {run.save / 'run.toml'}, pass --accept-changed-settings to go on with these, or start "
            "a new run with another --save."
        )
    if problems:
        raise CheckpointError("\n".join(problems))
    return [f"changed since the checkpoint, and accepted: {each}" for each in (*plugins, *settings)]
