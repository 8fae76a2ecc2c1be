"""Run: the driver's loop with its ledger, checkpoints and run folder.

Example:

    with RunFolder.open(Path("runs/first"), plan.config.to_dict()) as folder:
        asyncio.run(run(plan, folder, display))
"""

from slime_core.run.accounts import GroupState, LedgerError
from slime_core.run.base_loop import Outcome
from slime_core.run.checkpoint import (
    Checkpoint,
    list_checkpoints,
    model_of,
    newest_checkpoint,
    verify,
)
from slime_core.run.folder import RunFolder
from slime_core.run.hf_copies import with_own_model
from slime_core.run.ledger import Ledger
from slime_core.run.prompts import DataRead, read_all_prompts
from slime_core.run.row_checks import DataSetReport
from slime_core.run.saving import Saver
from slime_core.run.session import Session
from slime_core.run.sft import read_all_dialogs
from slime_core.run.start import run
from slime_core.run.trainer import Trainer, TrainReport

__all__ = [
    "Checkpoint",
    "DataRead",
    "DataSetReport",
    "GroupState",
    "Ledger",
    "LedgerError",
    "Outcome",
    "RunFolder",
    "Saver",
    "Session",
    "TrainReport",
    "Trainer",
    "list_checkpoints",
    "model_of",
    "newest_checkpoint",
    "read_all_dialogs",
    "read_all_prompts",
    "run",
    "verify",
    "with_own_model",
]
