"""Best: the model that did best in an evaluation so far, whole and under one name, however few checkpoints are kept.

Example:

    best = Best(run_dir / "best", "heldout")
    if await best.offer(30, metrics, trainer.save_whole):         # run_dir/best/hf is the model now
        display.message(best.text)

`best.json` beside the model says after which rollout, and how good. Of two that are as good, the earlier one stays.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from slime_core.errors import RunFolderError
from slime_core.outputs import refuse_occupied
from slime_core.run.checkpoint import MODEL
from slime_core.run.saving import OLD, SaveModel, put_in_place, sync
from slime_core.telemetry import names

RECORD = "best.json"


class Best:
    """The best model of one run."""

    def __init__(self, root: Path, dataset: str) -> None:
        """Keep it in `root`, judged by the mean reward on one evaluation set."""
        self._root, self._dataset = root, dataset
        if (old := root.with_name(root.name + OLD)).exists() and not root.exists():
            old.rename(root)  # killed between the two renames that put another in its place
        self._reward, self._rollout_id = _read(root / RECORD)
        if self._reward is None:
            refuse_occupied(f"save_best = {dataset!r}", root)

    @property
    def text(self) -> str:
        """How good it is, and where."""
        return f"best so far: {self._dataset} {self._reward:.3f} after {self._rollout_id} rollouts, in {self._root}"

    async def offer(self, rollout_id: int, metrics: Mapping[str, float], save_model: SaveModel) -> bool:
        """Keep the model of now, if an evaluation says that it is better than all before.

        Raises:
            RunFolderError: it could not be written; the one before it is still there.
        """
        reward = metrics.get(names.eval_reward(self._dataset))
        if reward is None or (self._reward is not None and reward <= self._reward):
            return False
        beside = self._root.with_name(f".{self._root.name}.tmp")
        try:
            shutil.rmtree(beside, ignore_errors=True)
            beside.mkdir(parents=True)
            await save_model(beside)
            for each in beside.iterdir():
                if each.name != MODEL:  # what continues a training; a checkpoint has it
                    shutil.rmtree(each)
            record = {"rollout_id": rollout_id, "dataset": self._dataset, "reward": reward}
            (beside / RECORD).write_text(json.dumps(record), encoding="utf-8")
            for path in sorted(beside.rglob("*")):
                sync(path)
            sync(beside)
            put_in_place(self._root, beside)
        except OSError as error:
            raise RunFolderError(f"cannot write the best model to {self._root}: {error}") from error
        self._reward, self._rollout_id = reward, rollout_id
        return True


def _read(record: Path) -> tuple[float | None, int]:
    """Reward and rollout of the best model that is there."""
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
        return float(found["reward"]), int(found["rollout_id"])
    except FileNotFoundError:
        return None, 0
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{record} cannot be read ({error}): remove its folder, or put it back") from error
