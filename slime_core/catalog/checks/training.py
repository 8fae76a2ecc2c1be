"""What reward shapers and batch transforms return, checked where the core takes it over.

rewards = check_shaped(shaper(groups, ctx), plugin="slime-reward-overlong", groups=groups, before=ctx.rewards)
"""

from array import array
from collections.abc import Mapping, Sequence
from math import isfinite

from slime_core.catalog.checks._refuse import check_list, refuse
from slime_core.errors import ContractError
from slime_core.roles import LOSS_MASK, Grain
from slime_core.sample import Group, Sample

Rewards = Sequence[Sequence[float | None]]
"""A row a group, a number a sample, None where it has none."""


def check_shaped(
    returned: object, *, plugin: str, groups: Sequence[Group], before: Rewards
) -> list[list[float | None]]:
    """A reward shaper's rewards, which were `before`.

    Raises:
        ContractError: not a row a group and a number a sample, one that is not finite, or None at the wrong place.
    """
    where = f"reward shaper of plugin {plugin}"
    rows = check_list(where, "a row of rewards a group", returned)
    if len(rows) != len(groups):
        raise ContractError(f"{where}: {len(rows)} rows for {len(groups)} groups; return a row a group")
    return [
        _shaped_row(f"{where}, group {group.id}", row, was)
        for group, row, was in zip(groups, rows, before, strict=True)
    ]


def _shaped_row(where: str, returned: object, before: Sequence[float | None]) -> list[float | None]:
    row = check_list(where, "a row of rewards", returned)
    if len(row) != len(before):
        raise ContractError(f"{where}: {len(row)} rewards for {len(before)} samples; return a number a sample")
    made: list[float | None] = []
    for position, (reward, was) in enumerate(zip(row, before, strict=True)):
        here = f"{where}, sample {position}"
        if was is None and reward is not None:
            raise ContractError(f"{here}: shaped to {reward!r}, but it has no reward: leave it None")
        if was is not None and reward is None:
            raise ContractError(f"{here}: shaped to None, but it has a reward; a sample filter takes samples out")
        made.append(None if reward is None else _number(here, reward))
    return made


def check_columns(
    returned: object, *, plugin: str, sample: Sample, grains: Mapping[str, Grain]
) -> dict[str, float | Sequence[float]]:
    """A batch transform's values for one sample: a float for a sample column, one a response token for a token column.

    Raises:
        ContractError: not a value for every declared column and no other, one of the wrong length, one that is not
            finite, or a loss mask that puts tokens in.
    """
    where = f"batch transform of plugin {plugin}, sample {sample.index} of group {sample.group_index}"
    if not isinstance(returned, Mapping):
        refuse(where, f"a dict of {', '.join(grains)}", returned)
    if returned.keys() != grains.keys():
        raise ContractError(
            f"{where}: made columns {', '.join(map(str, returned)) or 'none'}; its spec declares {', '.join(grains)}"
        )
    made: dict[str, float | Sequence[float]] = {}
    for name, grain in grains.items():
        here = f"{where}, column {name!r}"
        if grain is Grain.SAMPLE:
            made[name] = _number(here, returned[name])
            continue
        values = check_list(here, "a number a response token", returned[name])
        if len(values) != sample.response_length:
            raise ContractError(f"{here}: {len(values)} values for {sample.response_length} response tokens")
        made[name] = array("f", [_number(here, value) for value in values])
        if name == LOSS_MASK:
            _check_mask(here, made[name], sample)  # type: ignore[arg-type]  # the branch of sequences
    return made


def _check_mask(where: str, mask: Sequence[float], sample: Sample) -> None:
    before = sample.loss_mask if sample.loss_mask is not None else [1] * sample.response_length
    for position, (bit, was) in enumerate(zip(mask, before, strict=True)):
        if bit not in (0.0, 1.0):
            raise ContractError(f"{where}: token {position} is {bit:g}; a mask is 0 or 1")
        if bit > was:
            raise ContractError(
                f"{where}: token {position} is 1 where the sample's mask is 0; tokens are only taken out"
            )


def _number(where: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        refuse(where, "a float", value)
    if not isfinite(value):
        raise ContractError(f"{where}: {value} is not finite")
    return float(value)
