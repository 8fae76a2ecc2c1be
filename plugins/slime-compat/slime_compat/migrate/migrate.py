"""Translates a slime launch script into a run file that `slime plan` accepts, and reports on every flag.

Example:

    migration = migrate(Path("run-qwen3-4B.sh"), {"NUM_GPUS": "8"})
    migration.values["rollout_batch_size"], migration.is_whole
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from slime_compat.flags.table import flags
from slime_compat.migrate.migration import GivenFlag, Migration, Result, Row, Unknown, Word, given_flags
from slime_compat.migrate.script import PROGRAMS, Script, Training, read_script
from slime_compat.migrate.translate import ENGINE, TRAINER, translate
from slime_core.config import Installed, write_toml
from slime_core.errors import ConfigError, SlimeError

MAX_ROUNDS = 100
"""Maximum number of attempts to remove invalid keys."""
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW", re.IGNORECASE)
_NO_OFFLOAD = re.compile(r"(?P<role>(?:trainer|engine) '\w+') cannot release memory; set (?P<key>offload_\w+) = false")
_KEY = re.compile(r"(?:unknown (?:key|setting) )?['\[]?([a-z_][\w.-]*)")


def migrate(path: Path, defined: Mapping[str, str]) -> Migration:
    """The run file's keys for a launch script, which is read but never run.

    Args:
        path: the script.
        defined: environment variables for the script, by name.

    Raises:
        ConfigError: the script cannot be read, starts no training or several, or a plugin is not installed.
    """
    installed = Installed()
    for role, name in (ENGINE, TRAINER):
        if (why := installed.refusal(role, name, "", None)) and not why.startswith("unknown setting"):
            raise ConfigError(f"slime's scripts need SGLang and Megatron, whose plugins list the valid flags: {why}")
    script = read_script(path, defined)
    training = _training(script)
    migration = Migration(path, installed, {"engine": {"use": ENGINE[1]}, "trainer": {"use": TRAINER[1]}})
    _note_script(script, training, migration)
    given = list(given_flags(training.words))
    if training.program == "train_async.py":
        migration.put(("rollout_policy",), "async")
        migration.weak.add(("rollout_policy",))
        migration.rows.append(
            Row(Result.MAPPED, training.program, 'rollout_policy = "async"', training.line, path=("rollout_policy",))
        )
    translate(given, migration)
    _set_colocated_gpus(given, migration)
    _set_implied(migration)
    _set_defaults({flag.name for flag in given}, migration)
    _remove_invalid(migration)
    return migration


def _training(script: Script) -> Training:
    found = script.trainings
    if not found:
        hidden = "".join(f"\n  {note.message}" for note in script.notes)
        raise ConfigError(
            f"{script.path} starts no training: expected a command that runs {' or '.join(PROGRAMS)}{hidden}"
        )
    if len(found) > 1:
        lines = ", ".join(str(training.line) for training in found)
        raise ConfigError(
            f"{script.path} starts training {len(found)} times, in lines {lines}: keep one command in a copy of it"
        )
    return found[0]


def _note_script(script: Script, training: Training, migration: Migration) -> None:
    for note in script.notes:
        is_model = "/models/" in note.why and note.why.startswith("there is no ")
        reason = "the model is read from its config.json" if is_model else "slime migrate runs no commands"
        migration.note(Result.NEEDLESS if is_model else Result.LEFT_OUT, note.why, reason, note.line, note.file)
    if training.repeated:
        migration.note(
            Result.LEFT_OUT,
            training.program,
            "a loop starts training several times; only one is written",
            training.line,
        )
    for word in training.before:
        if isinstance(word.text, str) and word.text.startswith("--runtime-env-json="):
            _note_environment(word, migration)
        elif isinstance(word.text, Unknown):
            migration.note(Result.MINOR, "words before the program", word.text.message, word.line)


def _note_environment(word: Word, migration: Migration) -> None:
    try:
        variables: dict[str, str] = json.loads(str(word.text).partition("=")[2])["env_vars"]
        shown = [name if _SECRET.search(name) else f"{name}={value}" for name, value in variables.items()]
    except (ValueError, KeyError, TypeError, AttributeError):
        shown = ["its env_vars"]
    advice = f"ranks and engines inherit the environment of slime train; export what you need: {', '.join(shown)}"
    migration.note(Result.MINOR, "--runtime-env-json", advice, word.line)


def _set_colocated_gpus(given: Sequence[GivenFlag], migration: Migration) -> None:
    """With `--colocate`, put the engines on all GPUs of the ranks, as slime does."""
    names = {each.name: each for each in given}
    counts = [migration.get("actor_num_nodes") or 1, migration.get("actor_num_gpus_per_node")]
    if "colocate" in names and "rollout_num_gpus" not in names and all(isinstance(each, int) for each in counts):
        value = int(str(counts[0])) * int(str(counts[1]))
        migration.put(("rollout_num_gpus",), value)
        text = f"rollout_num_gpus = {value}, the GPUs of the ranks"
        migration.rows.append(
            Row(Result.MAPPED, "--colocate", text, names["colocate"].line, path=("rollout_num_gpus",))
        )


def _set_implied(migration: Migration) -> None:
    """Write settings that slime implies: finetuning renders dialogs; without a reward, the generate function scores."""
    if migration.get("loss_type") == "sft_loss" and migration.get("apply_chat_template") is None:
        migration.put(("apply_chat_template",), True)
        text = "apply_chat_template = true: finetuning renders dialogs"
        migration.rows.append(Row(Result.MAPPED, "implied by slime", text, 0, path=("apply_chat_template",)))
    if migration.get("generator", "use") == "generate" and not (
        migration.get("reward") or migration.get("group_reward")
    ):
        migration.put(("reward", "use"), "environment")
        text = 'reward.use = "environment": the generate function sets sample.reward'
        migration.rows.append(Row(Result.MAPPED, "no reward model", text, 0, path=("reward", "use")))


def _set_defaults(given: set[str], migration: Migration) -> None:
    for flag in flags().values():
        path = (flag.name,)
        if flag.default is not None and flag.name not in given and migration.get(*path) is None:
            migration.put(path, flag.default)
            text = f"{flag.name} = {json.dumps(flag.default)}"
            migration.rows.append(Row(Result.MAPPED, "slime's default", text, 0, path=path))


def _remove_invalid(migration: Migration) -> None:
    """Remove the settings that `slime plan` would reject, and record why."""
    for _ in range(MAX_ROUNDS):
        try:
            migration.installed.check({"save": "runs/migrated", **migration.values})
        except SlimeError as error:
            errors = str(error).splitlines()
        else:
            return
        found = next(filter(None, map(_NO_OFFLOAD.search, errors)), None)
        if found and migration.get(found["key"]) is None:
            migration.put((found["key"],), False)
            text = f"{found['key']} = false: {found['role']} cannot release its memory"
            migration.rows.append(Row(Result.MINOR, "--colocate", text, 0, path=(found["key"],)))
            continue
        invalid = {row.path: line for line in errors if (row := _row_of_error(line, migration)) is not None}
        if not invalid:
            migration.problems = errors
            return
        for path, why in invalid.items():
            _remove(path, why, migration)


def _row_of_error(line: str, migration: Migration) -> Row | None:
    match = _KEY.match(line)
    name = match[1].rstrip(".") if match else ""
    placed = [row for row in migration.rows if row.path]
    exact = [row for row in placed if name in (".".join(row.path), row.path[0] if len(row.path) == 1 else "")]
    return next(iter(exact), None) or next(
        (row for row in placed if len(row.path) > 2 and re.search(rf"\b{re.escape(row.path[-1])}\b", line)), None
    )


def _remove(path: tuple[str, ...], why: str, migration: Migration) -> None:
    migration.drop(path)
    has_no_effect = "has no effect here" in why and "it is a setting of" not in why
    kept: list[Row] = []
    for row in migration.rows:
        if row.path != path:
            kept.append(row)
        elif row.line:
            kept.append(Row(Result.NEEDLESS if has_no_effect else Result.LEFT_OUT, row.flag, why, row.line, row.file))
        elif not has_no_effect and path != ("bf16",):
            kept.append(Row(Result.LEFT_OUT, row.flag, why, 0))
        elif path == ("bf16",):
            kept.append(Row(Result.MINOR, "bf16, slime's default", why, 0))
    migration.rows = kept


FLAG_WIDTH = 48
"""Columns of a flag in the report."""


def run_file(migration: Migration, script: Path) -> str:
    """The run file as TOML."""
    left = [*(f"{row.flag}: {row.here}" for row in migration.of(Result.LEFT_OUT)), *migration.problems]
    lines = [f"# From {script.name}, by slime migrate.", *(f"# Left out: {' '.join(each.split())}" for each in left)]
    return "\n".join(lines) + "\n\n" + write_toml(migration.values)


def report(migration: Migration) -> Iterator[str]:
    """Lines for the terminal: which flags were kept, mapped, not needed or left out."""
    kept = migration.of(Result.KEPT)
    yield f"{len(kept)} kept: {_names(kept)}"
    for result in (Result.MAPPED, Result.NEEDLESS, Result.MINOR, Result.LEFT_OUT):
        rows = migration.of(result)
        yield f"{len(rows)} {result.value}" + (":" if rows else "")
        yield from _lines(rows)
    if migration.problems:
        yield "slime plan will reject the run file:"
        yield from (f"  {problem}" for problem in migration.problems)


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    for here in dict.fromkeys(row.here for row in rows):
        same = [row for row in rows if row.here == here]
        if len(same) > 2:
            yield f"  {here}:"
            yield f"    {_names(same)}"
        else:
            yield from map(_line, same)


def _names(rows: Sequence[Row]) -> str:
    return " ".join(dict.fromkeys(row.flag.split()[0].removeprefix("--") for row in rows))


def _line(row: Row) -> str:
    flag = row.flag if len(row.flag) <= FLAG_WIDTH else row.flag[: FLAG_WIDTH - 3] + "..."
    where = f"{row.file}:{row.line}" if row.file else f"line {row.line}" if row.line else ""
    return f"  {where:<9} {flag:<{FLAG_WIDTH}}  {row.here}"
