"""Checkpoints in Megatron's format: Megatron reads ours, we read Megatron's, and invalid files are refused."""

import os
import pickle  # noqa: TID251 -- to show that it is refused
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from models_and_steps import setup_of, write_model

from slime_core.errors import CheckpointError
from slime_trainer_megatron.compat import replace_cuda, suppress_warnings
from slime_trainer_megatron.rank import MegatronRank, leave_ranks
from slime_trainer_megatron.torch_dist import Piece, Saving, StoredCheckpoint

ONE = {"num_gpus": 1}


@pytest.fixture(scope="module")
def rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MegatronRank]:
    folder = tmp_path_factory.mktemp("rank")
    yield MegatronRank(0, 1, setup_of(write_model(folder / "model", "qwen3"), folder, ONE))
    leave_ranks()


def of(key: str, value: torch.Tensor, rows: int, first: int = 0) -> Piece:
    sizes = tuple(value.shape)
    return Piece(key, (rows, *sizes[1:]), (first, *[0] * (len(sizes) - 1)), sizes, value.dtype, lambda: value)


def written(folder: Path, *pieces: Piece) -> Path:
    assert Saving(folder, pieces).finish(wait=True)
    return folder


def test_any_slice_is_read_from_any_pieces(rank: MegatronRank, tmp_path: Path) -> None:
    whole = torch.arange(24.0).view(6, 4)
    folder = written(tmp_path / "saved", *(of("w", whole[at : at + 2].clone(), 6, at) for at in (0, 2, 4)))
    mine = torch.empty(3, 4)
    StoredCheckpoint(folder).read([of("w", mine, 6, 3)])
    assert torch.equal(mine, whole[3:])
    assert StoredCheckpoint(folder).shapes() == {"w": (6, 4)}


def test_padded_vocabulary_is_resized(rank: MegatronRank, tmp_path: Path) -> None:
    folder = written(tmp_path / "saved", of("w", torch.ones(5, 2), 5))
    longer, shorter = torch.full((6, 2), 7.0), torch.full((4, 2), 7.0)
    StoredCheckpoint(folder).read([replace(of("w", longer, 6), padded=True)])
    StoredCheckpoint(folder).read([replace(of("w", shorter, 4), padded=True)])
    assert longer.tolist() == [[1.0, 1.0]] * 5 + [[0.0, 0.0]]
    assert shorter.tolist() == [[1.0, 1.0]] * 4


def test_checkpoints_are_reproducible(rank: MegatronRank, tmp_path: Path) -> None:
    one, other = (written(tmp_path / name, of("w", torch.ones(5, 2), 5)) for name in ("one", "other"))
    assert (one / ".metadata").read_bytes() == (other / ".metadata").read_bytes()


def test_checkpoint_with_a_gap_is_refused(rank: MegatronRank, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="would be incomplete"):
        Saving(tmp_path / "saved", [of("w", torch.ones(2, 2), 5)])


def test_mismatched_tensors_are_refused(rank: MegatronRank, tmp_path: Path) -> None:
    folder = written(tmp_path / "saved", of("w", torch.ones(5, 2), 5))
    with pytest.raises(CheckpointError, match="another model: it has no tensor 'other'"):
        StoredCheckpoint(folder).read([of("other", torch.ones(5, 2), 5)])
    with pytest.raises(CheckpointError, match=r"its 'w' is of shape \(5, 2\); expected \(5, 3\)"):
        StoredCheckpoint(folder).read([of("w", torch.ones(5, 3), 5)])


class _Runs:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (RUN,)


RUN = "it-ran"


def test_foreign_pickle_is_not_executed(rank: MegatronRank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".metadata").write_bytes(pickle.dumps(_Runs()))
    with pytest.raises(CheckpointError, match=r"it names posix\.mkdir"):
        StoredCheckpoint(tmp_path)
    assert not (tmp_path / RUN).exists()
    pickle.loads((tmp_path / ".metadata").read_bytes())
    assert (tmp_path / RUN).exists(), "and would have"


def test_paths_outside_the_folder_are_refused(rank: MegatronRank, tmp_path: Path) -> None:
    folder = written(tmp_path / "saved", of("w", torch.ones(5, 2), 5))
    metadata = (folder / ".metadata").read_bytes()
    (tmp_path / "0.distcp").write_bytes((folder / "__0_0.distcp").read_bytes())
    (folder / ".metadata").write_bytes(
        metadata.replace(b"__0_0.distcp", b"../0.distcp", 1).replace(b"X\x0c", b"X\x0b", 1)
    )
    with pytest.raises(CheckpointError):
        StoredCheckpoint(folder)


def test_checkpoints_are_compatible_with_megatron(rank: MegatronRank, tmp_path: Path) -> None:
    """Save with Megatron's planners, but not with its writer process, which waits for a GPU."""
    with suppress_warnings():
        from megatron.core.dist_checkpointing.mapping import ShardedTensor, apply_factories
        from megatron.core.dist_checkpointing.strategies import torch as theirs
        from torch.distributed.checkpoint import FileSystemWriter, save

        from slime_trainer_megatron.torch_dist import rank_parameters
    replace_cuda(torch.device("cpu"))
    wanted = {name: each.clone() for name, each in rank.weights()}
    rank.save(tmp_path / "mine")
    assert rank.finish_save(wait=True)

    def sharded() -> dict[str, object]:
        made = {held.sharded.key + str(at): held.sharded for at, held in enumerate(rank_parameters(rank.policy))}
        apply_factories(made)
        assert any(isinstance(each, list) for each in made.values())
        return made

    def emptied() -> None:
        with torch.no_grad():
            for parameter in rank.policy.parameters():
                parameter.zero_()

    with suppress_warnings():
        flatten = theirs._replace_state_dict_keys_with_sharded_keys  # noqa: SLF001  # Megatron has no public name for it
        flat, _, _ = flatten(sharded())
        assert all(isinstance(each, ShardedTensor) for several in flat.values() for each in several)
        made = theirs.mcore_to_pyt_state_dict(flat)
        planner = theirs.MCoreSavePlanner(flatten_state_dict=False)
        save(made, storage_writer=FileSystemWriter(tmp_path / "theirs"), planner=planner)
        emptied()
        theirs.TorchDistLoadShardedStrategy().load(sharded(), tmp_path / "mine" / "optim")
        assert all(torch.equal(each, wanted[name]) for name, each in rank.weights())
    emptied()
    stored = StoredCheckpoint(tmp_path / "theirs")
    for held in rank_parameters(rank.policy):
        stored.read(held.pieces(held.parameter.data))
    assert all(torch.equal(each, wanted[name]) for name, each in rank.weights())
