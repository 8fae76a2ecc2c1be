"""The command `slime plan`: resolves and checks everything, prints the plan, and starts no process.

Example:

    slime plan run.toml --lr 1e-5 --no-data
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from slime_core.catalog import PluginState, part
from slime_core.cli.plugins import plugin_options
from slime_core.cli.run_options import RunCommand, plan_run, run_input
from slime_core.config import FAMILIES, Chosen, Plan, canonical, show_settings, worker_groups, write_toml
from slime_core.errors import ConfigError
from slime_core.roles import CallSpec, EngineSpec, TransportSpec, describe_isolation
from slime_core.sample import Json
from slime_core.secrets import REDACTOR
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
@click.option("--out", type=click.Path(path_type=Path), help="Write the keys of RUN_FILE and flags as TOML.")
@click.pass_context
def plan(ctx: click.Context, run_file: Path | None, as_json: bool, no_data: bool, out: Path | None) -> None:
    """Show what RUN_FILE and flags resolve to: role, plugin, version, place, settings; and read the data."""
    resolved, given = plan_run(ctx, run_file), run_input(ctx, run_file)
    form = canonical([given.file, given.flags], given.catalog)
    if out is not None:
        _write(out, form.values)
    read = None if no_data else _read_data(resolved)
    notes = read.notes if read else ()
    if as_json:
        data: dict[str, Json] = {"data": [*_described_data(read)] if read else [], "data_notes": [*notes]}
        click.echo(json.dumps({**describe_plan(resolved), "taken": form.notes, **data}, indent=2))
        return
    show_plan(resolved)
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
        return cast("Callable[[Plan], DataRead]", part("read_dialogs", "slime-train", "finetuning"))(resolved)
    return read_all_prompts(resolved)


def _write(path: Path, values: Mapping[str, Json]) -> None:
    if path.suffix != ".toml":
        raise ConfigError(f"--out {path}: run files are written as TOML, with a name that ends in .toml")
    if path.exists():
        raise ConfigError(f"--out {path}: it is there already; give another name")
    try:
        path.write_text(write_toml(values), "utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def describe_plan(plan: Plan) -> dict[str, Json]:
    """Everything that a plan resolved, as docs/formats.md describes it."""
    keys: dict[str, Json] = {}
    for family in FAMILIES:
        keys.update(getattr(plan.config, family).model_dump(mode="json", exclude_none=True))
    choices: list[Json] = [
        {
            "role": role,
            "choice": chosen.reference,
            "plugin": chosen.plugin,
            "version": chosen.registered.version,
            "origin": chosen.registered.origin,
            "weight": chosen.weight,
            "settings": show_settings(chosen.settings),
            "isolation": _isolation(chosen),
        }
        for role, several in plan.roles.items()
        for chosen in several
    ]
    groups: list[Json] = [
        {
            "group": group.name,
            "workers": group.size,
            "cpus": group.needs.cpus,
            "gpus": group.needs.gpus,
            "memory": group.needs.memory,
            "custom": {**group.needs.custom},
        }
        for group in worker_groups(plan)
    ]
    return {
        "choices": choices,
        "keys": keys,
        "groups": groups,
        "transport": plan.roles.one(TransportSpec).reference,
        "wants": _wants(plan),
        "architecture": _architecture(plan),
        "plugins": _plugins(plan),
        "excluded": _excluded(plan),
        "unused": [*plan.unused],
    }


def _isolation(chosen: Chosen) -> str:
    return describe_isolation(chosen.spec) if isinstance(chosen.spec, CallSpec) else ""


def _wants(plan: Plan) -> list[Json]:
    return [*sorted(extra.value for extra in plan.want)]


def _plugins(plan: Plan) -> list[Json]:
    return [f"{each.plugin} {each.version}".rstrip() for each in plan.catalog.loaded]


def _excluded(plan: Plan) -> list[Json]:
    return [each.plugin for each in plan.catalog.statuses if each.state is PluginState.EXCLUDED]


def _architecture(plan: Plan) -> str:
    match plan.model_config():
        case {"architectures": [str(name), *_]} | {"model_type": str(name)}:
            return name
    return "unknown"


def show_plan(plan: Plan) -> None:
    """Print a plan as tables; what is at its default is dim."""
    choices, settings = [], []
    for role, several in plan.roles.items():
        for chosen in several:
            weight = "" if chosen.weight == 1.0 else f" x {chosen.weight:g}"
            made_by = f"{chosen.plugin} {chosen.registered.version}".strip()
            place = (
                f"{made_by}  {click.style(_short(chosen.registered.origin), dim=True)}  {_isolation(chosen)}".rstrip()
            )
            choices.append((role, click.style(chosen.reference + weight, bold=True), place))
            for key, info in type(chosen.settings).model_fields.items():
                value = REDACTOR.redact_data(getattr(chosen.settings, key))
                settings.append(_line(f"{role}.{chosen.reference}.{key}", value, info))
    keys = [
        _line(name, each, info)
        for attribute, family in FAMILIES.items()
        for key, info in family.model_fields.items()
        for name, each in _flat(key, getattr(getattr(plan.config, attribute), key))
    ]
    for title, rows in (("choices", choices), ("settings", settings), ("keys", keys)):
        click.secho(title, fg="cyan", bold=True)
        _table(rows)
        click.echo()
    _row("plugins, in order", ", ".join(map(str, _plugins(plan))))
    if excluded := _excluded(plan):
        _row("left out", ", ".join(map(str, excluded)), fg="yellow")
    for group in worker_groups(plan):
        workers = "1 process" if group.size == 1 else f"{group.size} processes"
        is_shared = group.name == "engine" and plan.config.cluster.colocate and group.needs.gpus
        shared = ", the trainer's" if is_shared else ""
        _row(f"{group.name} needs", f"{workers}: {group.needs}{shared}")
    _row("weights travel by", plan.roles.one(TransportSpec).reference)
    if plan.want:
        _row("engine also gives", ", ".join(map(str, _wants(plan))))
    _row("model architecture", _architecture(plan))
    engine = plan.roles.one(EngineSpec)
    if explain := engine.spec.explain:
        _row(f"engine {engine.reference}", explain(engine.settings, plan.model_config()))
    for section in plan.unused:
        _row("unused section", f"[{section}]: nothing chooses {section.partition('.')[2]!r}", fg="yellow")


def _table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, map(click.unstyle, column))) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell + " " * (width - len(click.unstyle(cell))) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _row(title: str, text: str, fg: str | None = None) -> None:
    click.secho(f"{title:<19} {text}", fg=fg)


def _flat(key: str, value: object) -> Iterator[tuple[str, object]]:
    if not isinstance(value, dict) or not any(isinstance(each, BaseModel) for each in value.values()):
        yield key, value
        return
    for name, table in value.items():
        for inner in type(table).model_fields:  # not of `model_dump`, which makes a path of a set that is a path alone
            if (each := getattr(table, inner)) is not None:
                yield f"{key}.{name}.{inner}", each


def _line(name: str, value: object, info: FieldInfo) -> tuple[str, str]:
    text = "-" if value is None else json.dumps(value, default=str)
    style = {"dim": True} if value == info.get_default(call_default_factory=True) else {"bold": True}
    return click.style(name, **style), click.style(text, **style)


def _short(origin: str) -> str:
    places = sorted((place for place in (*sys.path, str(Path.cwd())) if place), key=len, reverse=True)
    for place in places:
        if origin.startswith(f"{place}/"):
            return origin[len(place) + 1 :]
    return origin


def _described_data(read: "DataRead") -> list[dict[str, Json]]:
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


def _lengths(report: "DataSetReport") -> dict[str, float]:
    if not (found := sorted(report.lengths)):
        return {}
    return {"p50": percentile(found, 0.5), "p99": percentile(found, 0.99), "max": found[-1]}


def _data_lines(report: "DataSetReport", context: int | None) -> Iterator[tuple[str, str]]:
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
    return text if len(text) <= PROMPT_SHOWN else f"{text[: PROMPT_SHOWN // 2]} ... {text[-PROMPT_SHOWN // 2 :]}"
