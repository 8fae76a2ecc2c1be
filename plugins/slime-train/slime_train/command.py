"""`slime sft`: supervised finetuning on dialogs, by the run's own trainer."""

from pathlib import Path

import click

from slime_core.cli.plugins import plugin_options
from slime_core.cli.run_options import RunCommand, parse_run, plan_config, run_input
from slime_core.cli.train import execute, restart_options
from slime_core.config import unused_in_finetuning
from slime_core.errors import ConfigError


@click.command(cls=RunCommand, short_help="Finetune on given responses.")
@click.argument("run_file", required=False, type=click.Path(path_type=Path))
@plugin_options
@restart_options
@click.pass_context
def sft(ctx: click.Context, run_file: Path | None, no_progress: bool, max_restarts: int) -> int:
    """Finetune on responses that are given, as RUN_FILE and flags say; flags win.

    A row is a list of chat messages (--input-key messages --apply-chat-template: the assistant's words are trained on),
    or a prompt and a response (--input-key, --label-key). A rollout is a step on --rollout-batch-size rows.

    Runs in the folder given by --save (default runs/NAME of the run file) and continues there when called again, or by
    `slime resume`. Evaluation sets are given a loss.

    slime sft --hf-checkpoint MODEL --prompt-data chats.jsonl --input-key messages --apply-chat-template --num-epoch 2
    --save runs/sft
    """
    config = parse_run(ctx, run_file, {"loss": {"use": "sft_loss"}, "calculate_per_token_loss": True})
    if not config.finetunes:
        raise ConfigError(
            "slime sft trains on given responses with sft_loss: leave out reward, group_reward, another loss and "
            "load_debug_rollout_data, or call slime train"
        )
    # A flag means something even where it says the default, as a key of a run file need not.
    given = run_input(ctx, run_file)
    if unread := [*unused_in_finetuning(given.flags)]:
        raise ConfigError("\n".join(unread))
    return execute(plan_config(ctx, config, given.catalog), no_progress, max_restarts)
