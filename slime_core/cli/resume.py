"""`slime resume`: continue a run from its newest checkpoint, with the config that it started with."""

from pathlib import Path

import click

from slime_core.catalog import Catalog
from slime_core.cli.plugin_options import plugin_options, with_plugin_options
from slime_core.cli.run_options import is_setting
from slime_core.cli.train import execute, how_options, resolve_in_folder
from slime_core.config import merge, parse_config, parse_plugins, read_run_file
from slime_core.errors import ConfigError, RunFolderError
from slime_core.nofollow import nofollow
from slime_core.sample import Json


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
