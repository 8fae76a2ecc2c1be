"""The commands `slime train`, `resume`, `eval` and `plan`: run, continue, evaluate, or only check a run.

`train` starts from a run file and flags. `resume` and `eval` use the newest checkpoint of a run folder; `eval` also
takes a model. `plan` resolves and checks everything, then prints the plan without starting a process.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar, cast

import click
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slime_core.catalog import Catalog, part
from slime_core.cli.main import STOPPED
from slime_core.cli.plugins import plugin_options, plugin_set, with_plugin_options
from slime_core.cli.run_options import RunCommand, catalog_of, collect_values, is_setting, refuse_unused, typed_values
from slime_core.config import (
    FAMILIES,
    Plan,
    RunConfig,
    TakenNames,
    describe_plan,
    merge,
    missing_plugins,
    parse_config,
    parse_plugins,
    read_run_file,
    resolve,
    say_lines,
    worker_groups,
    write_toml,
)
from slime_core.errors import CheckpointError, ConfigError, RunFolderError, UnknownName, WorkerError, printable
from slime_core.outputs import nofollow
from slime_core.roles import EngineSpec
from slime_core.run import (
    Checkpoint,
    DataRead,
    DataSetReport,
    Outcome,
    RunFolder,
    list_checkpoints,
    model_of,
    newest_checkpoint,
    read_all_prompts,
    run,
    with_own_model,
)
from slime_core.run.build import Builder, tokenizer_notes
from slime_core.run.session import evaluate_model
from slime_core.sample import Json
from slime_core.secrets import REDACTOR
from slime_core.stats import percentile
from slime_core.telemetry import make_display, run_folder_errors
from slime_core.telemetry.recording import write_run_report

# `slime train`: from a run file and flags to a finished run.

CommandT = TypeVar("CommandT", bound=Callable[..., object])


def how_options(command: CommandT) -> CommandT:
    """Add the flags of who starts or continues a run that say nothing of what is trained."""
    restarts = click.option(
        "--max-restarts",
        metavar="INT",
        type=click.IntRange(min=0),
        default=0,
        help="Times that a run which lost a worker continues by itself, from its newest checkpoint.",
    )
    plain = click.option("--no-progress", is_flag=True, help="One plain line a rollout instead of the live display.")
    return plain(restarts(command))


@click.command(cls=RunCommand)
@click.argument("run_file", required=False, type=click.Path(path_type=Path))
@plugin_options
@how_options
@click.pass_context
def train(ctx: click.Context, /, run_file: Path | None, no_progress: bool, max_restarts: int, **flags: object) -> int:
    """Train on your own prompts, as RUN_FILE (TOML or YAML) and flags say; flags win.

    Runs in the folder given by --save (default runs/NAME of the run file) and continues there when called again.

    slime train run.toml --lr 1e-5
    """
    plan = plan_run(ctx, run_file, flags)
    return execute(plan, no_progress, max_restarts)


def plan_run(ctx: click.Context, run_file: Path | None, flags: dict[str, object]) -> Plan:
    """Resolve a run file and flags."""
    with lines_of(run_file):
        return plan_config(ctx, parse_run(ctx, run_file, flags))


@contextlib.contextmanager
def lines_of(run_file: Path | None) -> Iterator[None]:
    """Say of keys of the run file that are unknown in which line they are."""
    try:
        yield
    except ConfigError as error:
        if run_file is None or (said := say_lines(str(error), run_file)) == str(error):
            raise
        raise ConfigError(said) from None


def parse_run(
    ctx: click.Context, run_file: Path | None, flags: dict[str, object], defaults: Mapping[str, Json] | None = None
) -> RunConfig:
    """The configuration that a run file and flags give; a command may have defaults of its own."""
    installed = catalog_of(ctx, plugin_set(ctx, read_run_file(run_file) if run_file else {}))
    values = {**(defaults or {}), **given_values(ctx, run_file, flags)}
    if run_file is not None:
        values.setdefault("save", f"runs/{run_file.stem}")
    return parse_config(values, installed)


def given_values(ctx: click.Context, run_file: Path | None, flags: dict[str, object]) -> dict[str, Json]:
    """The keys that a run file and flags give, without defaults."""
    settings: dict[str, Json] = ctx.obj
    installed = catalog_of(ctx, plugin_set(ctx, read_run_file(run_file) if run_file else {}))
    return with_plugin_options(ctx, collect_values(run_file, flags, settings, installed))


def names_taken(ctx: click.Context, run_file: Path | None, flags: dict[str, object]) -> list[str]:
    """A sentence for each key of the run file, and for each flag, that has another framework's name."""
    values = read_run_file(run_file) if run_file else {}
    names = TakenNames(catalog_of(ctx, plugin_set(ctx, values)))
    return [*names.place(values).notes, *names.place(typed_values(flags)).notes]


def plan_config(ctx: click.Context, config: RunConfig) -> Plan:
    """Resolve a configuration of `parse_run`."""
    settings: dict[str, Json] = ctx.obj
    plan = resolve_in_folder(config, catalog_of(ctx, config.plugins))
    refuse_unused(plan.unused, settings)
    return plan


def resolve_in_folder(config: RunConfig, catalog: Catalog) -> Plan:
    """Resolve a configuration; an unknown name is explained by the plugins that its run folder was made with."""
    config = with_own_model(config)
    if config.missing_model is not None:
        click.echo(
            f"hf_checkpoint = {config.missing_model} is gone; {config.run.hf_checkpoint} serves instead", err=True
        )
    try:
        return resolve(config, catalog)
    except UnknownName as error:
        missing = missing_plugins(_newest_lock(config.run.save / "checkpoints"), catalog)
        if not missing:
            raise
        listed = "\n  ".join(missing)
        raise UnknownName(f"{error}\nThe run in {config.run.save} was made with\n  {listed}") from None


def _newest_lock(checkpoints: Path) -> dict[str, Json]:
    """The plugin lock of the newest checkpoint that can be read."""
    for path in reversed(list_checkpoints(checkpoints)):
        with contextlib.suppress(CheckpointError):
            return Checkpoint(path, 0).state().plugins
    return {}


def execute(plan: Plan, no_progress: bool, max_restarts: int = 0) -> int:
    """Run a plan in its folder and write the report; returns the exit code.

    Args:
        plan: what is run.
        no_progress: a plain line a rollout.
        max_restarts: times that it continues by itself after the loss of a worker.

    Raises:
        WorkerError: a worker was lost once more.
        SlimeError: whatever else ends the run.
    """
    root = plan.config.run.save
    for number in range(1, max_restarts + 1):
        try:
            outcome = _run(plan, no_progress)
            break
        except WorkerError as error:
            click.echo(f"lost a worker: {error}\nrestart {number} of {max_restarts}: {root}", err=True)
    else:
        outcome = _run(plan, no_progress)
    for what, path in write_run_report(root):
        click.echo(f"{what}: {path}")
    if outcome is Outcome.STOPPED and plan.config.debug.debug_rollout_only:
        click.echo(f"stopped; what was generated is in {root / 'samples'}")
        return STOPPED
    if outcome is Outcome.STOPPED:
        click.echo(f"stopped and saved; continue with: slime resume {root}")
        return STOPPED
    return 0


def _run(plan: Plan, no_progress: bool) -> Outcome:
    root, accept_changed = plan.config.run.save, plan.config.run.accept_changed_settings
    with (
        RunFolder.open(root, plan.config.to_dict(), accept_changed=accept_changed) as folder,
        make_display(progress=not no_progress) as display,
    ):
        return asyncio.run(run(plan, folder, display))


# `slime resume`: continue a run from its newest checkpoint, with the config that it started with.


class ResumeCommand(click.Command):
    """A command that says where the settings are that a resumed run does not take from the command line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; a flag of `slime train` is refused with what to type instead."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            key = error.option_name.removeprefix("--").removeprefix("no-").replace("-", "_")
            if not is_setting(key):
                raise
            raise ConfigError(
                f"{error.option_name} is not a flag of `slime resume`: a run continues with the settings that it "
                "started with. To change one, edit it in RUN_DIR/run.toml, and pass --accept-changed-settings."
            ) from None


@click.command(cls=ResumeCommand)
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option("--num-rollout", metavar="INT", help="Rollouts of the whole run, to make it longer.")
@click.option(
    "--lr-decay-iters", metavar="INT", help="Optimizer steps of the learning rate's decay, to keep it in a longer run."
)
@click.option("--save-interval", metavar="INT", help="Rollouts between checkpoints.")
@click.option("--save-keep", metavar="INT", help="Newest checkpoints to keep.")
@click.option(
    "--accept-changed-data",
    is_flag=True,
    default=None,
    help="Continue although prompt files changed since the checkpoint.",
)
@click.option(
    "--accept-changed-plugins",
    is_flag=True,
    default=None,
    help="Continue although plugins changed since the checkpoint.",
)
@click.option(
    "--accept-changed-settings",
    is_flag=True,
    default=None,
    help="Continue although run.toml changed since the checkpoint.",
)
@plugin_options
@how_options
@click.pass_context
def resume(
    ctx: click.Context, /, run_dir: Path, no_progress: bool, max_restarts: int, **changes: str | bool | None
) -> int:
    """Continue the run in RUN_DIR."""
    run_file = run_file_of(run_dir)
    over: dict[str, Json] = {key: value for key, value in changes.items() if value is not None}
    values = merge(read_run_file(run_file), over) | {"save": str(run_dir)}
    if "num_rollout" in over:
        values.pop("num_epoch", None)
    values = with_plugin_options(ctx, values)
    catalog = Catalog.discover(parse_plugins(values.get("plugins", {})))
    return execute(resolve_in_folder(parse_config(values, catalog), catalog), no_progress, max_restarts)


def run_file_of(run_dir: Path) -> Path:
    """The run file that a run folder keeps.

    Raises:
        RunFolderError: it is not a run folder.
    """
    for name in ("run.toml", "checkpoints"):
        if not (run_dir / name).exists():
            raise RunFolderError(f"{run_dir} is not a run folder: it has no {name}. Give the folder named by --save.")
    return nofollow(run_dir / "run.toml")


# `slime eval`: how well does a run's newest checkpoint, or a model, do on the evaluation sets.


@click.command(cls=RunCommand, name="eval")
@click.argument("run", required=False, type=click.Path(path_type=Path))
@plugin_options
@click.option("--no-progress", is_flag=True, help="Plain lines instead of the live display.")
@click.pass_context
def evaluate(ctx: click.Context, /, run: Path | None, no_progress: bool, **flags: object) -> None:
    """Evaluate RUN: a run folder (its newest checkpoint), a run file or a model directory; flags win.

    slime eval runs/first --n-samples-per-eval-prompt 8
    """
    catalog = catalog_of(ctx, plugin_set(ctx, _read(run)))
    values = with_plugin_options(ctx, _values(run, flags, ctx.obj, catalog))
    plan = resolve(parse_config(_for_evaluation(values), catalog), catalog)
    refuse_unused(plan.unused, ctx.obj)
    root = plan.config.run.save
    with RunFolder.open(root, plan.config.to_dict()) as folder, make_display(progress=not no_progress) as display:
        metrics = asyncio.run(evaluate_model(plan, folder, display))
    with run_folder_errors(root / "eval.json", "write"):
        (root / "eval.json").write_text(json.dumps(metrics, indent=1), encoding="utf-8")
    for name, value in sorted(metrics.items()):
        click.echo(f"{printable(name):40} {value:.4f}")
    click.echo(f"written: {root / 'eval.json'}")


def _read(run: Path | None) -> dict[str, Json]:
    """The run file of what is evaluated; a model directory has none."""
    if run is None or (run / "config.json").exists():
        return {}
    return read_run_file(run_file_of(run) if run.is_dir() else run)


def _values(run: Path | None, flags: dict[str, object], settings: dict[str, Json], catalog: Catalog) -> dict[str, Json]:
    """Keys of what is evaluated: it has a folder of its own, so that a run's folder is never touched."""
    if run is not None and (run / "config.json").exists():
        given: dict[str, Json] = {"save": f"runs/{run.resolve().name}-eval", "hf_checkpoint": str(run)}
        return given | collect_values(None, flags, settings, catalog)
    if run is None or not run.is_dir():
        values = collect_values(run, flags, settings, catalog)
        trained = values.get("save", f"runs/{run.stem if run else 'model'}")
        return values | {"save": str(flags["save"] or f"{trained}-eval")}
    values = collect_values(run_file_of(run), flags, settings, catalog)
    checkpoint = newest_checkpoint(run / "checkpoints", lambda text: click.echo(printable(text), err=True))
    if checkpoint is None:
        raise CheckpointError(f"{run} has no checkpoint yet")
    model = flags["hf_checkpoint"] or model_of(checkpoint.path)
    own = flags["save"] or f"{run}-eval/{checkpoint.path.name}"
    return values | {"hf_checkpoint": str(model), "save": str(own)}


_TRAINING_ONLY = (
    *("load_debug_rollout_data", "num_epoch", "rollout_max_prompt_len"),
    *("save_hf", "save_debug_train_data"),
)


def _for_evaluation(values: dict[str, Json]) -> dict[str, Json]:
    """The same keys without what only training needs; nothing is drawn from a training set, so none is read."""
    sets = values.get("eval_prompt_data")
    if not sets or not isinstance(sets, dict):
        raise ConfigError("nothing to evaluate on: give --eval-prompt-data NAME PATH")
    kept = {key: value for key, value in values.items() if key not in _TRAINING_ONLY}
    for key in ("input_key", "label_key"):
        if (own := kept.pop(f"eval_{key}", None)) is not None:
            kept[key] = own
    first = next(iter(sets.values()))
    kept["prompt_data"] = first.get("path") if isinstance(first, dict) else first
    kept["data_source"], kept["tracker"] = {"use": "prompts"}, {"use": []}
    kept["eval_interval"] = kept["num_rollout"] = 1
    kept["debug_rollout_only"] = kept["debug_train_only"] = False
    return kept


# `slime plan`: everything resolved and checked, nothing started.

PROMPT_SHOWN = 200
"""Characters of a prompt, half of them from its end, where a chat template opens the answer."""
WIDE = 100
"""Columns from which on a choice's plugin and place fit side by side."""


@click.command(cls=RunCommand)
@click.argument("run_file", required=False, type=click.Path(path_type=Path))
@plugin_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--no-data", is_flag=True, help="Do not read the prompts.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the keys of RUN_FILE and flags as TOML.")
@click.pass_context
def plan(
    ctx: click.Context, /, run_file: Path | None, as_json: bool, no_data: bool, out: Path | None, **flags: object
) -> None:
    """Show what RUN_FILE and flags resolve to: role, plugin, version, place, settings; and read the data."""
    resolved = plan_run(ctx, run_file, flags)
    if out is not None:
        _write(out, given_values(ctx, run_file, flags))
    if no_data:
        read = DataRead(())
    elif resolved.config.finetunes:
        read_all_dialogs = cast(Callable[[Plan], DataRead], part("read_dialogs", "slime-train", "finetuning"))
        read = read_all_dialogs(resolved)
    else:
        read = read_all_prompts(resolved)
    notes = [*tokenizer_notes(Builder.of(resolved)), *read.notes]
    taken = names_taken(ctx, run_file, flags)
    if as_json:
        data: dict[str, Json] = {"data": [*_described_data(read)], "data_notes": [*notes]}
        click.echo(json.dumps({**describe_plan(resolved), "taken": taken, **data}, indent=2))
    else:
        console = Console()
        show_plan(resolved, console)
        for note in taken:
            console.print(Text(f"taken               {note}", "yellow"))
        for report in read.reports:
            for title, text in _data_lines(report, read.context):
                console.print(Text(f"{title:<19} {text}"))
        for note in notes:
            console.print(Text(note, "yellow"))


def _write(path: Path, values: Mapping[str, Json]) -> None:
    if path.suffix != ".toml":
        raise ConfigError(f"--out {path}: run files are written as TOML, with a name that ends in .toml")
    if path.exists():
        raise ConfigError(f"--out {path}: it is there already; give another name")
    try:
        path.write_text(write_toml(values), "utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def show_plan(resolved: Plan, console: Console) -> None:
    """Print a plan as tables; what is at its default is dim."""
    described = describe_plan(resolved)
    choices, settings, keys = (Table.grid(padding=(0, 2, 0, 0)) for _ in range(3))
    for _ in range(3):
        choices.add_column(overflow="fold")
    beside = "  " if console.width >= WIDE else "\n"
    for row in described["choices"]:
        weight = "" if row["weight"] == 1.0 else f" x {row['weight']:g}"
        made_by = f"{row['plugin']} {row['version']}".strip()
        place = Text.assemble(made_by, beside, (_short(row["origin"]), "dim"))
        if row["isolation"]:
            place.append(f"{beside}{row['isolation']}")
        choices.add_row(row["role"], Text(row["choice"] + weight, "bold"), place)
    for role, several in resolved.roles.items():
        for chosen in several:
            for key, info in type(chosen.settings).model_fields.items():
                name, value = f"{role}.{chosen.reference}.{key}", getattr(chosen.settings, key)
                default = info.get_default(call_default_factory=True)
                settings.add_row(*_line(name, REDACTOR.redact_data(value), default))
    for attribute, family in FAMILIES.items():
        for key, info in family.model_fields.items():
            value = getattr(getattr(resolved.config, attribute), key)
            for name, each in _flat(key, value):
                keys.add_row(*_line(name, each, info.get_default(call_default_factory=True)))
    for title, table in (("choices", choices), ("settings", settings), ("keys", keys)):
        console.print(Text(title, "bold cyan"))
        console.print(table)
        console.print()
    console.print(Text(f"plugins, in order   {', '.join(described['plugins'])}"))
    if described["excluded"]:
        console.print(Text(f"left out            {', '.join(described['excluded'])}", "yellow"))
    shares = resolved.config.cluster.colocate
    for group in worker_groups(resolved):
        workers = "1 process" if group.workers == 1 else f"{group.workers} processes"
        shared = ", the trainer's" if group.name == "engine" and shares and group.needs.gpus else ""
        console.print(Text(f"{f'{group.name} needs':<19} {workers}: {group.needs}{shared}"))
    console.print(Text(f"weights travel by   {described['transport']}"))
    if described["wants"]:
        console.print(Text(f"engine also gives   {', '.join(described['wants'])}"))
    console.print(Text(f"model architecture  {described['architecture']}"))
    engine = resolved.roles.one(EngineSpec)
    if explain := engine.spec.explain:
        console.print(Text(f"{f'engine {engine.reference}':<19} {explain(engine.settings, resolved.model_config())}"))
    for section in described["unused"]:
        console.print(Text(f"unused section      [{section}]: nothing chooses {section.partition('.')[2]!r}", "yellow"))


def _flat(key: str, value: object) -> Iterator[tuple[str, object]]:
    """A key and its value; a table of tables, key by key, without what it leaves to others."""
    if not isinstance(value, dict) or not any(isinstance(each, BaseModel) for each in value.values()):
        yield key, value
        return
    for name, table in value.items():
        for inner in type(table).model_fields:  # not of `model_dump`, which makes a path of a set that is a path alone
            if (each := getattr(table, inner)) is not None:
                yield f"{key}.{name}.{inner}", each


def _line(name: str, value: object, default: object) -> tuple[Text, Text]:
    shown = "-" if value is None else json.dumps(value, default=str)
    style = "dim" if value == default else "bold"
    return Text(name, style), Text(shown, style)


def _short(origin: str) -> str:
    """A place in the source, relative to where Python or the shell finds it."""
    places = sorted((place for place in (*sys.path, str(Path.cwd())) if place), key=len, reverse=True)
    for place in places:
        if origin.startswith(f"{place}/"):
            return origin[len(place) + 1 :]
    return origin


def _described_data(read: DataRead) -> list[dict[str, Json]]:
    """Every data set as plain data, for `slime plan --json`."""
    return [
        {
            "name": each.name,
            "prompts": each.prompts if each.epoch is None else each.epoch,
            "first_prompt": [dict(message) for message in each.first_prompt]
            if isinstance(each.first_prompt, list)
            else each.first_prompt,
            "label": each.label,
            "tokens": {**_lengths(each)},
            "context": read.context,
        }
        for each in read.reports
    ]


def _lengths(report: DataSetReport) -> dict[str, float]:
    """Tokens of its prompts or dialogs: p50, p99 and max; empty where prompts are messages that a generator renders."""
    if not (found := sorted(report.lengths)):
        return {}
    return {"p50": percentile(found, 0.5), "p99": percentile(found, 0.99), "max": found[-1]}


def _data_lines(report: DataSetReport, context: int | None) -> Iterator[tuple[str, str]]:
    """Lines about one data set, each with its title."""
    made = "" if report.epoch is None else f" looked at, of {report.epoch} in an epoch"
    yield f"data {report.name}", f"{report.prompts} {report.unit}s{made}"
    yield "  first prompt", _shortened(repr(report.first_prompt))
    if report.label is not None:
        yield "  its label" if report.unit == "prompt" else "  its answer", _shortened(repr(report.label))
    if found := _lengths(report):
        part = f" of {len(report.lengths)} that were measured" if len(report.lengths) < report.prompts else ""
        of = f"; prompt and answer together may have {context}" if context is not None else ""
        yield f"  {report.unit} tokens", ", ".join(f"{name} {value}" for name, value in found.items()) + part + of


def _shortened(text: str) -> str:
    """Both ends of a text that `repr` made: on one line, and with every control character escaped."""
    return text if len(text) <= PROMPT_SHOWN else f"{text[: PROMPT_SHOWN // 2]} ... {text[-PROMPT_SHOWN // 2 :]}"
