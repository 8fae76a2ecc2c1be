"""`slime migrate`: converts a launch script of slime to a run file."""

from collections.abc import Sequence
from pathlib import Path

import click

from slime_core.errors import ConfigError

LEFT_OUT = 1
"""Exit code if a flag that matters was left out."""


@click.command()
@click.argument("script", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Run file to write, .toml.  [default: SCRIPT's name here]")
@click.option(
    "--define", "-D", "definitions", multiple=True, metavar="NAME=VALUE", help="Set a variable of the script."
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def migrate(script: Path, out: Path | None, definitions: Sequence[str], force: bool) -> int:
    """Convert SCRIPT, a launch script of slime, to a run file. The script is read and not run.

    Lists which flags were kept, translated or left out, and why. Exits with 1 if a flag that matters was left out.

    slime migrate run-qwen3-4B.sh -D NUM_GPUS=8 --out run.toml && slime plan run.toml
    """
    from slime_compat.migrate.migrate import migrate as read
    from slime_compat.migrate.migrate import report, run_file

    target = out or Path(script.with_suffix(".toml").name)
    if target.suffix != ".toml":
        raise ConfigError(f"--out {target}: a run file is TOML; give a name that ends in .toml")
    if target.exists() and not force:
        raise ConfigError(f"{target} already exists: give another --out, or --force to overwrite it")
    migration = read(script, dict(map(_definition, definitions)))
    try:
        target.write_text(run_file(migration, script), "utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {target}: {error.strerror}") from None
    for line in report(migration):
        click.echo(line)
    click.echo(f"run file: {target}")
    return 0 if migration.is_whole else LEFT_OUT


def _definition(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise ConfigError(f"--define {text}: expected NAME=VALUE")
    return name, value
