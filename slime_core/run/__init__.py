"""Run: the driver's loop with its ledger, checkpoints and run folder.

Example:

    with RunFolder.open(Path("runs/first"), plan.config.to_dict()) as folder:
        asyncio.run(run(plan, folder, display))
"""

from slime_core.run.checkpoint import Checkpoint, Saver, list_checkpoints, model_of, newest_checkpoint, verify
from slime_core.run.folder import RunFolder
from slime_core.run.ledger import GroupState, Ledger, LedgerError
from slime_core.run.loop import Outcome, run
from slime_core.run.prompts import DataRead, DataSetReport, read_all_prompts
from slime_core.run.session import Session, open_session
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
    "open_session",
    "read_all_prompts",
    "run",
    "verify",
]
