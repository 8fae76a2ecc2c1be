"""`slime plugins check`: runs the contract kit on installed plugins, a project folder or a module, without pytest."""

import contextlib
import importlib
import json
import os
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from slime_core.catalog import installed_candidates
from slime_core.cli.plugins import plugin_options, plugin_set
from slime_core.errors import ConfigError, PluginError, printable
from slime_core.roles import PluginSet
from slime_core.sample import Json
from slime_core.secrets import drawable, escape_prints
from slime_testing import CheckStatus, PluginReport, check_plugin, write_distribution
from slime_testing.by_role import GROUP as OFFERED
from slime_testing.report import ALL_CHECKS

GROUP = "slime.plugins"


@contextlib.contextmanager
def as_if_installed(folder: Path) -> Iterator[str]:
    """Make a project importable in this process and its children, with its metadata; yields the project's name.

    Raises:
        ConfigError: the folder has no pyproject.toml with a plugin, or lacks the module of an entry point.
    """
    project = _read_project(folder)
    name, entries = _entry_points(folder, project)
    source = _source_folder(folder, entries)
    before, variable = list(sys.path), os.environ.get("PYTHONPATH")
    with tempfile.TemporaryDirectory(prefix="slime-plugin-") as metadata:
        write_distribution(
            Path(metadata),
            name,
            {},
            entry_points=entries,
            contracts=_group(project, OFFERED),
            version=str(project.get("version", "0")),
            requires=_texts(project.get("dependencies", [])),
            readme=_readme(folder, project.get("readme")),
        )
        added = [metadata, str(source.resolve())]
        sys.path[:0] = added
        os.environ["PYTHONPATH"] = os.pathsep.join([*added, *([variable] if variable else [])])
        importlib.invalidate_caches()
        try:
            yield name
        finally:
            sys.path[:] = before
            if variable is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = variable


def _read_project(folder: Path) -> Mapping[str, Json]:
    file = folder / "pyproject.toml"
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8")).get("project")
    except OSError:
        expected = "expected a plugin's project folder or a module file"
        raise ConfigError(f"{folder} has no pyproject.toml; {expected}") from None
    except ValueError as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise ConfigError(f"{file} has no [project] table with a name")
    return table


def _entry_points(folder: Path, project: Mapping[str, Json]) -> tuple[str, dict[str, str]]:
    entries = _group(project, GROUP)
    if not entries:
        raise ConfigError(
            f'{folder / "pyproject.toml"} declares no plugin; write [project.entry-points."{GROUP}"] NAME = "MODULE"'
        )
    return str(project["name"]), entries


def _group(project: Mapping[str, Json], group: str) -> dict[str, str]:
    groups = project.get("entry-points", {})
    entries = groups.get(group, {}) if isinstance(groups, dict) else {}
    return {name: str(value) for name, value in entries.items()} if isinstance(entries, dict) else {}


def _source_folder(folder: Path, entries: Mapping[str, str]) -> Path:
    tops = [value.partition(":")[0].partition(".")[0] for value in entries.values()]
    for place in (folder, folder / "src"):
        if all((place / f"{top}.py").is_file() or (place / top).is_dir() for top in tops):
            return place
    modules = ", ".join(tops)
    raise ConfigError(f"entry points refer to {modules}, which is neither in {folder} nor in {folder / 'src'}")


def _texts(value: Json) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def _readme(folder: Path, readme: Json) -> str:
    match readme:
        case str(file) | {"file": str(file)}:
            with contextlib.suppress(OSError):
                return (folder / file).read_text(encoding="utf-8")
        case {"text": str(text)}:
            return text
    return ""


CORE = "slime-core"
OF_THE_AUTHOR = "needs the author's"
_COLOURS = {
    CheckStatus.PASSED: "green",
    CheckStatus.FAILED: "red",
    CheckStatus.SKIPPED: "yellow",
    CheckStatus.XFAILED: "yellow",
}


@click.command(short_help="Run the contract kit on plugins, without pytest.")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@plugin_options
@click.pass_context
def check(ctx: click.Context, name: str | None, as_json: bool) -> int:
    """Run the contract kit on NAME: an installed plugin, a module file, or a project folder that is not installed.

    Without NAME, check every installed plugin except slime-core. Exit code 1 when a check fails.

    \b
    slime plugins check slime-reward-math
    slime plugins check ./my_plugin.py
    slime plugins check ../slime-reward-mine
    """  # noqa: D301  # \b keeps click from filling the lines below it
    plugins = plugin_set(ctx)
    rows: list[Json] = []
    passed = True
    for each in [name] if name else _installed(plugins):
        report = _report(each, plugins)
        passed = passed and isinstance(report, PluginReport) and report.passed
        if as_json:
            rows.append(_row(each, report))
        elif isinstance(report, PluginReport):
            _show(report)
        else:
            name, failed = click.style(printable(each), fg="cyan", bold=True), click.style("failed", fg="red")
            click.echo(f"{name}  {failed}: {printable(str(report))}\n")
    if as_json:
        click.echo(json.dumps({"schema_version": 1, "passed": passed, "plugins": rows}, indent=2))
    elif not name and not _installed(plugins):
        click.echo(f"no plugin other than {CORE} is installed")
    return 0 if passed else 1


def _installed(plugins: PluginSet) -> list[str]:
    found = dict.fromkeys(each.plugin for each in installed_candidates() if each.dist != CORE)
    return [each for each in (*found, *plugins.modules) if each not in plugins.without]


def _report(name: str, plugins: PluginSet) -> PluginReport | PluginError:
    file, _, choice = name.rpartition(":")
    if file:
        return PluginError(
            f"{name} is a function, not a plugin. In {file}, define SLIME_API and a hook that yields {choice}, as "
            f"`slime plugins new` does; then type: slime plugins check {file}"
        )
    console = Console(file=drawable(sys.stderr))
    with (
        contextlib.redirect_stdout(sys.stderr),  # keeps plugins' output apart from the report
        console.status(f"checking {escape(name)}") if console.is_terminal else contextlib.nullcontext(),
        _importable(name) as known_as,
    ):
        if console.is_terminal:
            escape_prints()
        try:
            return check_plugin(known_as, plugins)
        except PluginError as error:
            return error


@contextlib.contextmanager
def _importable(name: str) -> Iterator[str]:
    folder = Path(name)
    if folder.is_dir() and ("/" in name or name in (".", "..") or (folder / "pyproject.toml").is_file()):
        with as_if_installed(folder) as dist:
            yield dist
    else:
        yield name


def _row(name: str, report: PluginReport | PluginError) -> dict[str, Json]:
    if isinstance(report, PluginReport):
        return {**report.to_dict(), "error": ""}
    nothing: dict[str, Json] = {"version": "", "passed": False, "cpu_s": 0.0, "undecided": [], "subjects": []}
    return {"plugin": name, **nothing, "error": str(report)}


def _show(report: PluginReport) -> None:
    counts = [(status, sum(result.status is status for result in report.results)) for status in CheckStatus]
    summary = ", ".join(f"{count} {status.value}" for status, count in counts if count)
    title = click.style(f"{report.plugin} {report.version}".rstrip(), fg="cyan", bold=True)
    click.echo(f"{title}  {summary}, {report.cpu_s:.1f} s of CPU")
    _show_undecided(report)
    for subject in report.subjects:
        click.echo(f"  {subject.title}")
        for result in subject.results:
            status = click.style(f"{result.status.value:7}", fg=_COLOURS[result.status])
            click.echo(f"    {status}  {result.identity}  {ALL_CHECKS[result.identity].title}")
            for line in result.detail.splitlines():
                click.echo(f"             {line}")
            if result.status is CheckStatus.FAILED:
                click.echo(f"             -> {' '.join(result.advice.split())}")
    click.echo()


def _show_undecided(report: PluginReport) -> None:
    reasons: dict[tuple[str, str], list[str]] = {}
    for title, result in report.undecided:
        reasons.setdefault((title, result.detail), []).append(result.identity)
    for (title, reason), identities in reasons.items():
        named = identities[0] if len(identities) == 1 else f"{identities[0]} and {len(identities) - 1} more"
        click.echo(f"  {click.style('not decided', fg='yellow')}  {title}, {named}: {reason}")
    if any(OF_THE_AUTHOR in reason for _, reason in reasons):
        click.echo(f"  The author can set this in a contract, by an entry point of the group {OFFERED}.")
