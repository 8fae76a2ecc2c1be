"""StoredRollouts: reads back a run's generated groups and training draws from its samples.

Example:

    generated, draw = StoredRollouts(Path("runs/first")).read(3)
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from slime_core.errors import RunFolderError
from slime_core.roles import Draw
from slime_core.sample import Group
from slime_core.telemetry import GeneratedGroups
from slime_view.samples.shard import Shard, list_shards

ItemT = TypeVar("ItemT")


class StoredRollouts:
    """The shards of a run folder, from rollout 0 on."""

    def __init__(self, run_dir: Path, share: float = 1.0) -> None:
        """Find the shards; of each, read only a share of the trained groups.

        Raises:
            RunFolderError: there are no shards, or one is missing.
        """
        self._directory, self._share = run_dir / "samples", share
        self._paths = list_shards(self._directory)
        if not self._paths:
            raise RunFolderError(
                f"{self._directory} holds no rollouts: give the run folder (--save) of the run that generated them"
            )
        for number, path in enumerate(self._paths):
            if path.name != f"rollout_{number:06d}.parquet":
                raise RunFolderError(
                    f"{self._directory} has no samples of rollout {number}, but has {path.name}: "
                    "to train on a folder, it must hold every rollout from 0 on"
                )

    def __len__(self) -> int:
        """Number of stored rollouts."""
        return len(self._paths)

    def read(self, rollout_id: int) -> tuple[GeneratedGroups, Draw]:
        """A rollout's generated groups, and its training draw.

        Raises:
            RunFolderError: a file is damaged, or a trained group is in no file.
        """
        shard = Shard(self._paths[rollout_id])
        generated = shard.groups()
        groups = {str(group.id): group for group in generated.kept}
        missing = {each.group for each in shard.drawn} - groups.keys()
        for path in reversed(self._paths[:rollout_id]):
            if not missing:
                break
            found = _groups(path, missing)
            groups |= found
            missing -= found.keys()
        if missing:
            raise RunFolderError(
                f"rollout {rollout_id} was trained on {len(missing)} groups that are not in {self._directory}, "
                f"such as {min(missing)}"
            )
        of_shard = _subsample(shard.drawn, self._share)
        drawn = [replace(groups[each.group], metadata=dict(each.metadata)) for each in of_shard]
        return generated, Draw(drawn, [each.weight for each in of_shard])


def _subsample(groups: Sequence[ItemT], share: float) -> Sequence[ItemT]:
    """A share of the groups, at least one: half from the beginning and half from the end, as in slime."""
    wanted = max(1, int(len(groups) * share))
    front = wanted // 2
    return [*groups[:front], *groups[len(groups) - (wanted - front) :]]


def _groups(path: Path, wanted: Collection[str]) -> dict[str, Group]:
    there = _group_ids(path).intersection(wanted)
    return {str(group.id): group for group in Shard(path).groups(there).kept} if there else {}


@lru_cache(maxsize=256)
def _group_ids(path: Path) -> frozenset[str]:
    return Shard(path).group_ids()
