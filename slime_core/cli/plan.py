"""`slime plan`: everything resolved and checked, nothing started."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from slime_core.cli.plugin_options import plugin_options
from slime_core.cli.run_options import RunCommand
from slime_core.cli.train import given_values, names_taken, plan_run
from slime_core.config import FAMILIES, Plan, describe_plan, worker_groups, write_toml
from slime_core.errors import ConfigError
from slime_core.roles import EngineSpec
from slime_core.run import DataRead, DataSetReport, read_all_dialogs, read_all_prompts
from slime_core.run.setup import Builder, tokenizer_notes
from slime_core.sample import Json
from slime_core.secrets import REDACTOR
from slime_core.stats import percentile

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
