"""`slime plugins new ROLE NAME`: writes a working plugin package as a starting point."""

import shlex
import textwrap
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from slime_core.catalog import Catalog, owner_package
from slime_core.errors import ConfigError
from slime_core.roles import SPECS, PluginSet
from slime_testing.scaffold import KINDS, License, Names, keep_core_arguments, render, write_package

ROLES = textwrap.fill(", ".join(KINDS), 90, break_on_hyphens=False)


@click.command("new", epilog=f"\b\nRoles:\n{ROLES}", short_help="Write a new plugin package.")
@click.argument("role")
@click.argument("name")
@click.option(
    "--into", type=click.Path(path_type=Path), default=Path(), help="Folder in which to create the package's folder."
)
@click.option(
    "--license",
    "license_",
    type=click.Choice([each.value for each in License], case_sensitive=False),
    default=License.APACHE_2_0.value,
    show_default=True,
    help="License of the package.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def new(role: str, name: str, into: Path, license_: str, force: bool) -> None:
    """Write a package slime-ROLE-NAME: a small working plugin, its tests, README and CI file."""
    names = Names.parse(role, name)
    if not force:
        _refuse_taken(names)
    folder = into / names.dist
    write_package(render(names, License(license_)), folder, force=force)
    summary = names.kind.summary
    summary = summary if summary[1].isupper() else summary[0].lower() + summary[1:]
    click.echo(f"wrote {folder}: {summary}\n\nnext:\n")
    for line in (f"cd {shlex.quote(str(folder))}", f"pip install {keep_core_arguments()} -e '.[test]'", "pytest"):
        click.echo(f"  {line}")
    if "file://" in (folder / "slime.txt").read_text("utf-8"):
        click.echo("\nIts CI needs the slime.txt of a release: the new one contains paths of this machine.")


def _refuse_taken(names: Names) -> None:
    """Reject a name in use: distributions would replace each other, and choices would need qualified names.

    Raises:
        ConfigError: a distribution or a choice of that name exists.
    """
    try:
        installed = version(names.dist)
    except PackageNotFoundError:
        installed = ""
    owner = _owner(names.kind.key, names.name)
    if installed:
        reason = f"{names.dist} {installed} is already installed"
    elif owner:
        reason = f"{names.kind.key} {names.name!r} is a choice of {owner}"
    else:
        return
    raise ConfigError(f"{reason}: use another name, or --force to write it anyway")


def _owner(role: str, name: str) -> str:
    if role not in SPECS:
        return ""
    of_core = Catalog.discover(PluginSet(only=()), strict=False).choices(role).values()
    return "slime-core" if any(each.spec.name == name for each in of_core) else owner_package(role, name)
