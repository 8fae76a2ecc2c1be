"""`slime convert`: a model directory as Megatron's torch_dist, and back. megatron-core is loaded when it is called.

Example:

    slime convert models/mine mine_torch_dist --verify
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
    help="Model directory with the configuration and tokenizer of a checkpoint that becomes a model directory; left "
    "out: the one that training began with.",
)
@click.option("--max-shard-size", default=SHARD, show_default=True, help="Of a file of a model directory's weights.")
@click.option("--verify", is_flag=True, help="Compare logits of both, by megatron-core and by transformers.")
def convert(source: Path, target: Path, origin_hf_dir: Path | None, max_shard_size: str, verify: bool) -> None:
    """Write the model directory SOURCE to TARGET as Megatron's torch_dist, or such a checkpoint as a model directory.

    A checkpoint is RUN/checkpoints/rollout_NNNNNN, or one of Megatron's.
    """
    if (source / "config.json").is_file():
        hf_to_torch_dist(source, target, verify=verify)
        return
    torch_dist_to_hf(source, target, origin_hf_dir, max_shard_size, verify=verify)


def hf_to_torch_dist(source: Path, target: Path, *, verify: bool) -> None:
    """A model directory as a checkpoint of Megatron's; errors as of `slime_trainer_megatron.converter`."""
    from slime_trainer_megatron.converter import to_torch_dist

    folder = to_torch_dist(source, target, click.echo)
    _verify(source, folder, verify)
    click.echo(f"wrote {folder}")


def torch_dist_to_hf(source: Path, target: Path, origin: Path | None, max_shard_size: str, *, verify: bool) -> None:
    """A checkpoint as a model directory; errors as of `slime_trainer_megatron.converter`."""
    try:
        size = TypeAdapter(ByteSize).validate_python(max_shard_size)
    except ValidationError:
        raise ConfigError(f"--max-shard-size {max_shard_size}: expected bytes, as 256MiB or {SHARD}") from None
    from slime_trainer_megatron.converter import files_of, to_hf

    to_hf(source, target, origin, max(1, size), click.echo)
    _verify(target, files_of(source), verify)
    click.echo(f"wrote {target}")


def _verify(directory: Path, folder: Path, verify: bool) -> None:
    if verify:
        from slime_trainer_megatron.verify import largest_difference

        click.echo(f"verified: logits differ by {largest_difference(directory, folder):.1e} of the largest one")
