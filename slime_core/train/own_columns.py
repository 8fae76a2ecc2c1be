"""The columns that the core itself makes of a sample, as a batch transform would. No torch.

Example:

    Preparation(makers=[teacher_column()])
"""

from collections.abc import Mapping, Sequence

from slime_core.catalog.used import Used
from slime_core.config import TEACHER_COLUMN
from slime_core.errors import ContractError
from slime_core.roles import Grain, ShapeContext
from slime_core.sample import Group, Sample
from slime_core.train.prepare import ColumnMaker

OWN = "slime-core"


def teacher_column() -> ColumnMaker:
    """The teacher's log-probs that samples bring along."""
    return ColumnMaker(Used(TEACHER_COLUMN, OWN, _teacher_log_probs), {TEACHER_COLUMN: Grain.TOKEN})


def reward_columns(keys: Sequence[str]) -> ColumnMaker:
    """The parts of a sample's reward, each as `reward/KEY`."""

    def parts(sample: Sample, group: Group, ctx: ShapeContext) -> Mapping[str, float]:
        reward = sample.reward
        if reward is None:
            return {f"reward/{key}": 0.0 for key in keys}
        there = reward if isinstance(reward, dict) else {}
        for key in keys:
            if key not in there:
                raise ContractError(
                    f"sample {sample.index} of group {sample.group_index} has no part {key!r} of its reward, which the "
                    f"advantage estimator reads: it has {', '.join(there) or f'the one number {reward}'}; name rewards "
                    "of [reward] or [group_reward], NAME/COMPONENT, or keys of a reward that is a dict"
                )
        return {f"reward/{key}": there[key] for key in keys}

    return ColumnMaker(Used("reward_parts", OWN, parts), {f"reward/{key}": Grain.SAMPLE for key in keys})


def _teacher_log_probs(sample: Sample, group: Group, ctx: ShapeContext) -> Mapping[str, Sequence[float]]:
    if sample.teacher_log_probs is not None:
        return {TEACHER_COLUMN: sample.teacher_log_probs}
    if sample.reward is not None and not sample.remove_sample and sample.response_length:
        raise ContractError(
            f"sample {sample.index} of group {sample.group_index} has no teacher_log_probs, which use_opd needs: a "
            "generator or a batch transform must bring them, or give opd_teacher_model, a teacher that is served, or "
            "opd_teacher_load, the directory of one that the trainer holds"
        )
    return {TEACHER_COLUMN: [0.0] * sample.response_length}
