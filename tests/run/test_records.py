"""Records: a run goes on only with the metrics and the ledger that its checkpoint was made with."""

import asyncio
from pathlib import Path

import pytest

from slime_core.errors import CheckpointError
from slime_core.run import Checkpoint, Ledger, RunFolder
from slime_core.run.loop import check_records
from slime_core.sample import Json
from tests.checkpoints import write_checkpoint
from tests.conftest import NO_STATE


def made(root: Path, *, ledger: bool = True, metrics: str = "") -> tuple[Checkpoint, RunFolder]:
    folder = RunFolder(root)
    folder.metrics.write_text(metrics)
    state: dict[str, Json] = {**NO_STATE, "metrics_position": len(metrics)}
    if ledger:
        accounts = Ledger(folder.ledger)
        state["ledger"] = accounts.state_dict()
        accounts.close()

    async def nothing(directory: Path) -> None: ...

    return asyncio.run(write_checkpoint(folder.checkpoints, 5, state, nothing, keep=1)), folder


def test_records_that_are_as_they_were_are_gone_on_with(tmp_path: Path) -> None:
    check_records(*made(tmp_path))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    checkpoint, folder = made(tmp_path)
    folder.ledger.unlink()
    with pytest.raises(CheckpointError, match=r"has checkpoints, but no ledger.jsonl, which rollout_000005 goes on"):
        check_records(checkpoint, folder)
    folder.metrics.unlink()
    with pytest.raises(CheckpointError, match=r"but no metrics.jsonl and no ledger.jsonl, which rollout_000005 goes"):
        check_records(checkpoint, folder)


def test_a_run_without_a_ledger_needs_none(tmp_path: Path) -> None:
    checkpoint, folder = made(tmp_path, ledger=False)
    assert not folder.ledger.exists()
    check_records(checkpoint, folder)
    folder.metrics.unlink()
    with pytest.raises(CheckpointError, match=r"but no metrics.jsonl, which"):
        check_records(checkpoint, folder)


def test_a_file_that_is_shorter_than_it_was_is_refused(tmp_path: Path) -> None:
    checkpoint, folder = made(tmp_path, metrics='{"a": 1}\n')
    folder.metrics.write_text("")
    with pytest.raises(CheckpointError, match=r"metrics.jsonl"):
        check_records(checkpoint, folder)
