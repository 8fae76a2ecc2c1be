"""Replicas of a Hugging Face model, each cut into pieces over ranks."""

from collections.abc import Iterable, Sequence
from typing import cast

from pydantic import Field

from slime_core import hookimpl
from slime_core.roles import RankSetup, SampleField, Settings, TrainerRank, TrainerSpec

SLIME_API = "1"
TOP_P = SampleField.ROLLOUT_TOP_P_TOKEN_IDS, SampleField.ROLLOUT_TOP_P_TOKEN_OFFSETS
"""What it counts where `rollout_top_p` is not 1."""
PRELOAD = ("torch", "transformers.models.llama.modeling_llama", "transformers.models.auto.modeling_auto")


class HalvesSettings(Settings):
    """`[trainer.halves]`."""

    replicas: int = Field(1, ge=1, description="Copies of the model, each with a share of a step.")
    pieces: int = Field(1, ge=1, description="Ranks of a copy.")


def _shares(settings: Settings) -> Sequence[int]:
    halves = cast(HalvesSettings, settings)
    return [replica for replica in range(halves.replicas) for _ in range(halves.pieces)]


def _build(rank: int, world_size: int, setup: RankSetup) -> TrainerRank:
    from slime_trainer_halves.rank import PieceRank

    return PieceRank(rank, world_size, setup)


@hookimpl
def slime_trainers() -> Iterable[TrainerSpec]:
    """One."""
    yield TrainerSpec(
        "halves",
        _build,
        HalvesSettings,
        "Replicas of a Hugging Face model, cut into pieces over ranks",
        world_size=lambda settings: len(_shares(settings)),
        preload=PRELOAD,
        shares=_shares,
        reads=lambda settings: frozenset(TOP_P),
    )
