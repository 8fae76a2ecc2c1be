"""`slime convert`: converts a model directory to Megatron's torch_dist format and back.

Example:

    slime convert models/mine mine_torch_dist
    slime convert runs/mine/checkpoints/rollout_000010 out
"""

from pathlib import Path

import click
from pydantic import ByteSize, TypeAdapter, ValidationError

from slime_core.errors import ConfigError

SHARD = "5GB"


@click.command()
@click.argument("source", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("target", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--origin-hf-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Model directory with the configuration and tokenizer, for a checkpoint. Default: the model that training "
    "began with.",
)
@click.option("--max-shard-size", default=SHARD, show_default=True, help="Maximum size of a weight file.")
def convert(source: Path, target: Path, origin_hf_dir: Path | None, max_shard_size: str) -> None:
    """Convert the model directory SOURCE to a torch_dist checkpoint in TARGET, or a checkpoint to a model directory.

    A checkpoint is RUN/checkpoints/rollout_NNNNNN, or a torch_dist checkpoint written by Megatron.
    """
    from slime_trainer_megatron.converter import to_hf, to_torch_dist

    if (source / "config.json").is_file():
        target = to_torch_dist(source, target, click.echo)
    else:
        try:
            size = TypeAdapter(ByteSize).validate_python(max_shard_size)
        except ValidationError:
            raise ConfigError(f"--max-shard-size {max_shard_size}: expected a size such as 256MiB or {SHARD}") from None
        to_hf(source, target, origin_hf_dir, max(1, size), click.echo)
    click.echo(f"wrote {target}")
