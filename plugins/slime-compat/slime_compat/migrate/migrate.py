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
from slime_compat.migrate.carry import ENGINE, TRAINER, carry
from slime_compat.migrate.outcome import Fate, Given, Migration, Row, Unknown, Word, given_flags
from slime_compat.migrate.script import PROGRAMS, Script, Training, read_script
from slime_core.config import Installed, write_toml
from slime_core.errors import ConfigError, SlimeError

MOST_ROUNDS = 100
"""Maximum number of keys that are removed one after another."""
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW", re.IGNORECASE)
_STAYS = re.compile(r"(?P<role>(?:trainer|engine) '\w+') cannot give up memory; set (?P<key>offload_\w+) = false")
_KEY = re.compile(r"(?:unknown (?:key|setting) )?['\[]?([a-z_][\w.-]*)")


def migrate(path: Path, defined: Mapping[str, str]) -> Migration:
    """The run file's keys for a launch script, which is read but never run.

    Args:
        path: the script.
        defined: environment variables for the script, by name.

    Raises:
        ConfigError: it cannot be read, trains nothing or several times, or needs a plugin that is not installed.
    """
    installed = Installed()
    for role, name in (ENGINE, TRAINER):
        if (why := installed.refusal(role, name, "", None)) and not why.startswith("unknown setting"):
            raise ConfigError(f"slime's scripts run on SGLang and Megatron, which say what they take: {why}")
    script = read_script(path, defined)
    training = _training(script)
    migration = Migration(path, installed, {"engine": {"use": ENGINE[1]}, "trainer": {"use": TRAINER[1]}})
    _note_script(script, training, migration)
    given = list(given_flags(training.words))
    if training.program == "train_async.py":
        migration.put(("rollout_policy",), "async")
        migration.weak.add(("rollout_policy",))
        migration.rows.append(
            Row(Fate.MAPPED, training.program, 'rollout_policy = "async"', training.line, path=("rollout_policy",))
        )
    carry(given, migration)
    _colocated(given, migration)
    _implied(migration)
    _defaults({each.name for each in given}, migration)
    _settle(migration)
    return migration


def _training(script: Script) -> Training:
    found = script.trainings
    if not found:
        hidden = "".join(f"\n  {each.told}" for each in script.notes)
        raise ConfigError(
            f"{script.path} starts no training: expected a command that runs {' or '.join(PROGRAMS)}{hidden}"
        )
    if len(found) > 1:
        lines = ", ".join(str(each.line) for each in found)
        raise ConfigError(
            f"{script.path} trains {len(found)} times, in lines {lines}: keep one of them in a copy of it"
        )
    return found[0]


def _note_script(script: Script, training: Training, migration: Migration) -> None:
    for each in script.notes:
        is_model = "/models/" in each.why and each.why.startswith("there is no ")
        said = "the model is read from its config.json" if is_model else "it is not run"
        migration.note(Fate.NEEDLESS if is_model else Fate.LEFT_OUT, each.why, said, each.line, each.file)
    if training.repeated:
        migration.note(
            Fate.LEFT_OUT, training.program, "a loop trains several times; this is one of them", training.line
        )
    for word in training.before:
        if isinstance(word.text, str) and word.text.startswith("--runtime-env-json="):
            _note_environment(word, migration)
        elif isinstance(word.text, Unknown):
            migration.note(Fate.MINOR, "what the command is started with", word.text.told, word.line)


def _note_environment(word: Word, migration: Migration) -> None:
    try:
        variables: dict[str, str] = json.loads(str(word.text).partition("=")[2])["env_vars"]
        told = [name if _SECRET.search(name) else f"{name}={value}" for name, value in variables.items()]
    except (ValueError, KeyError, TypeError, AttributeError):
        told = ["what its env_vars say"]
    said = f"ranks and engines have the environment of slime train; export there what you want: {', '.join(told)}"
    migration.note(Fate.MINOR, "--runtime-env-json", said, word.line)


def _colocated(given: Sequence[Given], migration: Migration) -> None:
    """With `--colocate`, put the engines on all GPUs of the ranks, as slime does."""
    names = {each.name: each for each in given}
    counts = [migration.get("actor_num_nodes") or 1, migration.get("actor_num_gpus_per_node")]
    if "colocate" in names and "rollout_num_gpus" not in names and all(isinstance(each, int) for each in counts):
        value = int(str(counts[0])) * int(str(counts[1]))
        migration.put(("rollout_num_gpus",), value)
        said = f"rollout_num_gpus = {value}, those of the ranks"
        migration.rows.append(Row(Fate.MAPPED, "--colocate", said, names["colocate"].line, path=("rollout_num_gpus",)))


def _implied(migration: Migration) -> None:
    """Write slime's defaults: finetuning renders dialogs, and a generate function without a reward also scores."""
    if migration.get("loss_type") == "sft_loss" and migration.get("apply_chat_template") is None:
        migration.put(("apply_chat_template",), True)
        said = "apply_chat_template = true: a finetuning renders its dialogs"
        migration.rows.append(Row(Fate.MAPPED, "slime's way", said, 0, path=("apply_chat_template",)))
    if migration.get("generator", "use") == "generate" and not (
        migration.get("reward") or migration.get("group_reward")
    ):
        migration.put(("reward", "use"), "environment")
        said = 'reward.use = "environment", what the generate function sets as sample.reward'
        migration.rows.append(Row(Fate.MAPPED, "no reward model", said, 0, path=("reward", "use")))


def _defaults(given: set[str], migration: Migration) -> None:
    for flag in flags().values():
        path = (flag.name,)
        if flag.default is not None and flag.name not in given and migration.get(*path) is None:
            migration.put(path, flag.default)
            said = f"{flag.name} = {json.dumps(flag.default)}"
            migration.rows.append(Row(Fate.MAPPED, "slime's default", said, 0, path=path))


def _settle(migration: Migration) -> None:
    """Remove the settings that `slime plan` would reject, and record why."""
    for _ in range(MOST_ROUNDS):
        try:
            migration.installed.check({"save": "runs/migrated", **migration.values})
        except SlimeError as error:
            refused = str(error).splitlines()
        else:
            return
        if (stays := next(filter(None, map(_STAYS.search, refused)), None)) and migration.get(stays["key"]) is None:
            migration.put((stays["key"],), False)
            said = f"{stays['key']} = false: {stays['role']} keeps its memory all the time, and trains the same"
            migration.rows.append(Row(Fate.MINOR, "--colocate", said, 0, path=(stays["key"],)))
            continue
        culprits = {row.path: line for line in refused if (row := _culprit(line, migration)) is not None}
        if not culprits:
            migration.problems = refused
            return
        for path, why in culprits.items():
            _take_out(path, why, migration)


def _culprit(line: str, migration: Migration) -> Row | None:
    match = _KEY.match(line)
    name = match[1].rstrip(".") if match else ""
    placed = [row for row in migration.rows if row.path]
    exact = [row for row in placed if name in (".".join(row.path), row.path[0] if len(row.path) == 1 else "")]
    return next(iter(exact), None) or next(
        (row for row in placed if len(row.path) > 2 and re.search(rf"\b{re.escape(row.path[-1])}\b", line)), None
    )


def _take_out(path: tuple[str, ...], why: str, migration: Migration) -> None:
    migration.drop(path)
    inert = "has no effect here" in why and "it is a setting of" not in why
    kept: list[Row] = []
    for row in migration.rows:
        if row.path != path:
            kept.append(row)
        elif row.line:
            kept.append(Row(Fate.NEEDLESS if inert else Fate.LEFT_OUT, row.flag, why, row.line, row.file))
        elif not inert and path != ("bf16",):
            kept.append(Row(Fate.LEFT_OUT, row.flag, why, 0))
        elif path == ("bf16",):
            kept.append(Row(Fate.MINOR, "bf16, slime's default", why, 0))
    migration.rows = kept


WIDEST = 48
"""Columns of a flag."""


def run_file(migration: Migration, script: Path) -> str:
    """The run file as TOML."""
    left = [*(f"{row.flag}: {row.here}" for row in migration.of(Fate.LEFT_OUT)), *migration.problems]
    lines = [f"# From {script.name}, by slime migrate.", *(f"# Left out: {' '.join(each.split())}" for each in left)]
    return "\n".join(lines) + "\n\n" + write_toml(migration.values)


def report(migration: Migration) -> Iterator[str]:
    """Lines for the screen: what was mapped, what is not needed, what was left out."""
    carried = migration.of(Fate.CARRIED)
    yield f"{len(carried)} carried: {_names(carried)}"
    for fate in (Fate.MAPPED, Fate.NEEDLESS, Fate.MINOR, Fate.LEFT_OUT):
        rows = migration.of(fate)
        yield f"{len(rows)} {fate.value}" + (":" if rows else "")
        yield from _lines(rows)
    if migration.problems:
        yield "slime plan will refuse it:"
        yield from (f"  {each}" for each in migration.problems)


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    for here in dict.fromkeys(row.here for row in rows):
        alike = [row for row in rows if row.here == here]
        if len(alike) > 2:
            yield f"  {here}:"
            yield f"    {_names(alike)}"
        else:
            yield from map(_line, alike)


def _names(rows: Sequence[Row]) -> str:
    return " ".join(dict.fromkeys(row.flag.split()[0].removeprefix("--") for row in rows))


def _line(row: Row) -> str:
    flag = row.flag if len(row.flag) <= WIDEST else row.flag[: WIDEST - 3] + "..."
    where = f"{row.file}:{row.line}" if row.file else f"line {row.line}" if row.line else ""
    return f"  {where:<9} {flag:<{WIDEST}}  {row.here}"
