"""What reward shapers, batch transforms and trainers return, checked where the core takes it over.

rewards = check_shaped(shaper(groups, ctx), plugin="slime-reward-overlong", groups=groups, before=ctx.rewards)
"""

from array import array
from collections.abc import Collection, Mapping, Sequence
from math import isfinite

from slime_core.catalog.checks._refuse import check_list, refuse
from slime_core.errors import ContractError
from slime_core.roles import LOSS_MASK, Grain, StepResult, WeightSlot
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


def check_step_result(returned: object, *, plugin: str, rank: int, groups: Collection[int]) -> StepResult:
    """What a trainer's rank reports of a step on the groups of these numbers.

    Raises:
        ContractError: not a `StepResult`, a sum or a scalar that is not a number, a name in `over_all_tokens` that is
            not a metric, or scores of other groups than its own.
    """
    where = f"trainer of plugin {plugin}, rank {rank}"
    if not isinstance(returned, StepResult):
        refuse(where, "a StepResult", returned)
    for kind, values in (("metrics", returned.metrics), ("scalars", returned.scalars)):
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                refuse(f"{where}, {kind} {name!r}", "a float", value)
    if unknown := sorted(set(returned.over_all_tokens) - returned.metrics.keys()):
        raise ContractError(f"{where}, over_all_tokens: names {', '.join(unknown)}, which is not among its metrics")
    tokens: object = returned.tokens
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        refuse(f"{where}, tokens", "a count", tokens)
    if set(returned.scores) != set(groups):
        raise ContractError(f"{where}: scores of groups {sorted(returned.scores)}; it was given {sorted(set(groups))}")
    for number, score in returned.scores.items():
        _number(f"{where}, score of group {number}", score)
    return returned


def check_slots(returned: object, *, plugin: str) -> Sequence[WeightSlot]:
    """What a trainer's rank says that its weights are.

    Raises:
        ContractError: not a sequence of `WeightSlot`, an empty one, or two slots of one name.
    """
    where = f"trainer of plugin {plugin}, weight_slots"
    slots = check_list(where, "WeightSlots", returned)
    names: set[str] = set()
    for slot in slots:
        if not isinstance(slot, WeightSlot):
            refuse(where, "WeightSlots", slot)
        if slot.name in names:
            raise ContractError(f"{where}: there are two of {slot.name!r}; each weight travels once")
        names.add(slot.name)
    if not names:
        raise ContractError(f"{where}: there are none; an engine could load nothing")
    return [slot for slot in slots if isinstance(slot, WeightSlot)]


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
