"""The command `slime plan`: resolves and checks everything, prints the plan, and starts no process.

Example:

    slime plan run.toml --lr 1e-5 --no-data
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click
from pydantic_core import to_jsonable_python

from slime_core.catalog import PluginState, load_part
from slime_core.cli.plugins import plugin_options
from slime_core.cli.run_options import RunCommand, plan_run, run_input
from slime_core.config import Plan, canonical, show_settings, worker_groups, write_toml
from slime_core.roles import CallSpec, EngineSpec, TransportSpec, describe_isolation
from slime_core.sample import Json
from slime_core.stats import percentile

if TYPE_CHECKING:
    from slime_core.run import DataRead, DataSetReport

PROMPT_SHOWN = 200
"""Characters of a prompt, half of them from its end, where a chat template opens the answer."""


@click.command(cls=RunCommand)
@click.argument("run_file", required=False, type=click.Path(path_type=Path))
@plugin_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--no-data", is_flag=True, help="Do not read the prompts, and do not look at the tokenizer.")
@click.pass_context
def plan(ctx: click.Context, run_file: Path | None, as_json: bool, no_data: bool) -> None:
    """Show what RUN_FILE and flags resolve to: role, plugin, version, place, settings; and read the data."""
    resolved, given = plan_run(ctx, run_file), run_input(ctx, run_file)
    form = canonical([given.file, given.flags], given.catalog)
    read = None if no_data else _read_data(resolved)
    notes = read.notes if read else ()
    if as_json:
        data: dict[str, Json] = {"data": [*_described_data(read)] if read else [], "data_notes": [*notes]}
        described = {**describe_plan(resolved), "keys": resolved.config.keys(), "taken": form.notes, **data}
        click.echo(json.dumps(described, indent=2))
        return
    show_plan(resolved, form.values)
    for note in form.notes:
        _row("taken", note, fg="yellow")
    for report in read.reports if read else ():
        for title, text in _data_lines(report, read.context if read else None):
            _row(title, text)
    for note in notes:
        click.secho(note, fg="yellow")


def _read_data(resolved: Plan) -> "DataRead":
    from slime_core.run import read_all_prompts

    if resolved.config.finetunes:
        return cast("Callable[[Plan], DataRead]", load_part("read_dialogs", "slime-train", "finetuning"))(resolved)
    return read_all_prompts(resolved)


def describe_plan(plan: Plan) -> dict[str, Json]:
    """What a plan resolved, without the keys of the run, as docs/formats.md describes it."""
    choices: list[Json] = [
        {
            "role": role,
            "choice": chosen.reference,
            "plugin": chosen.plugin,
            "version": chosen.registered.version,
            "origin": chosen.registered.origin,
            "weight": chosen.weight,
            "settings": show_settings(chosen.settings),
            "isolation": describe_isolation(chosen.spec) if isinstance(chosen.spec, CallSpec) else "",
        }
        for role, several in plan.roles.items()
        for chosen in several
    ]
    groups: list[Json] = [
        {"group": each.name, "workers": each.size, **asdict(each.needs)} for each in worker_groups(plan)
    ]
    architecture = "unknown"
    match plan.model_config():
        case {"architectures": [str(name), *_]} | {"model_type": str(name)}:
            architecture = name
    return {
        "choices": choices,
        "groups": groups,
        "transport": plan.roles.one(TransportSpec).reference,
        "wants": [*sorted(extra.value for extra in plan.want)],
        "architecture": architecture,
        "plugins": [f"{each.plugin} {each.version}".rstrip() for each in plan.catalog.loaded],
        "excluded": [each.plugin for each in plan.catalog.statuses if each.state is PluginState.EXCLUDED],
        "unused": [*plan.unused],
    }


def show_plan(plan: Plan, given: Mapping[str, Json]) -> None:
    """Print the choices of a plan, the keys and settings that were given, and what follows from them."""
    about = describe_plan(plan)
    choices = []
    for row in cast("list[dict[str, Json]]", about["choices"]):
        name = f"{row['choice']}" if row["weight"] == 1.0 else f"{row['choice']} x {row['weight']:g}"
        made_by, origin = f"{row['plugin']} {row['version']}".strip(), click.style(_short(str(row["origin"])), dim=True)
        place = f"{made_by}  {origin}  {row['isolation']}".rstrip()
        choices.append((str(row["role"]), click.style(name, bold=True), place))
    click.secho("choices", fg="cyan", bold=True)
    _table(choices)
    click.secho("\nkeys and settings; others are at their defaults, which --json shows", fg="cyan", bold=True)
    click.echo(write_toml(given))
    _row("plugins, in order", _joined(about["plugins"]))
    if about["excluded"]:
        _row("left out", _joined(about["excluded"]), fg="yellow")
    for group in worker_groups(plan):
        workers = "1 process" if group.size == 1 else f"{group.size} processes"
        is_shared = group.name == "engine" and plan.config.cluster.colocate and group.needs.gpus
        shared = ", the trainer's" if is_shared else ""
        _row(f"{group.name} needs", f"{workers}: {group.needs}{shared}")
    _row("weights travel by", str(about["transport"]))
    if about["wants"]:
        _row("engine also gives", _joined(about["wants"]))
    _row("model architecture", str(about["architecture"]))
    engine = plan.roles.one(EngineSpec)
    if explain := engine.spec.explain:
        _row(f"engine {engine.reference}", explain(engine.settings, plan.model_config()))
    for section in plan.unused:
        _row("unused section", f"[{section}]: nothing chooses {section.partition('.')[2]!r}", fg="yellow")


def _joined(value: Json) -> str:
    return ", ".join(cast("list[str]", value))


def _table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, map(click.unstyle, column))) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell + " " * (width - len(click.unstyle(cell))) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _row(title: str, text: str, fg: str | None = None) -> None:
    click.secho(f"{title:<19} {text}", fg=fg)


def _short(origin: str) -> str:
    places = sorted((place for place in (*sys.path, str(Path.cwd())) if place), key=len, reverse=True)
    return next((origin[len(place) + 1 :] for place in places if origin.startswith(f"{place}/")), origin)


def _described_data(read: "DataRead") -> list[dict[str, Json]]:
    return [
        {
            "name": each.name,
            "prompts": each.prompts,
            "first_prompt": to_jsonable_python(each.first_prompt),
            "label": each.label,
            "tokens": {**_lengths(each)},
            "context": read.context,
        }
        for each in read.reports
    ]


def _lengths(report: "DataSetReport") -> dict[str, float]:
    if not (found := sorted(report.lengths)):
        return {}
    return {"p50": percentile(found, 0.5), "p99": percentile(found, 0.99), "max": found[-1]}


def _data_lines(report: "DataSetReport", context: int | None) -> Iterator[tuple[str, str]]:
    yield f"data {report.name}", f"{report.prompts} {report.unit}s"
    yield "  first prompt", _shortened(repr(report.first_prompt))
    if report.label is not None:
        yield "  its label" if report.unit == "prompt" else "  its answer", _shortened(repr(report.label))
    if found := _lengths(report):
        part = f" of {len(report.lengths)} that were measured" if len(report.lengths) < report.prompts else ""
        of = f"; prompt and answer together may have {context}" if context is not None else ""
        yield f"  {report.unit} tokens", ", ".join(f"{name} {value}" for name, value in found.items()) + part + of


def _shortened(text: str) -> str:
    return text if len(text) <= PROMPT_SHOWN else f"{text[: PROMPT_SHOWN // 2]} ... {text[-PROMPT_SHOWN // 2 :]}"
