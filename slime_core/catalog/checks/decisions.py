"""What filters and buffers return, checked where the core takes it over.

decision = check_decision(group_filter(group, ctx), plugin="slime-filter-std", group=group)
"""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite

from slime_core.catalog.checks._refuse import check_id, check_list, check_position, check_reason, refuse
from slime_core.errors import ContractError
from slime_core.roles import Decision, Draw, Drop, Keep, KeepIfShort, Removal, Selection
from slime_core.sample import Group, GroupId


def check_selection(returned: object, *, plugin: str, held: int, want: int) -> Selection:
    """A buffer filter's choice among `held` groups when `want` were wanted.

    Raises:
        ContractError: more than `want` taken, a position out of range or named twice.
    """
    where = f"buffer filter of plugin {plugin}, {held} groups held, {want} wanted"
    if not isinstance(returned, Selection):
        refuse(where, "a Selection", returned, "return Selection(take=[...], drop=[...])")
    for field, positions in (("take", returned.take), ("drop", returned.drop)):
        seen: set[int] = set()
        for position in positions:
            check_position(f"{where}: Selection.{field}", position, held)
            if position in seen:
                raise ContractError(f"{where}: Selection.{field} holds position {position} twice")
            seen.add(position)
    if len(returned.take) > want:
        raise ContractError(f"{where}: Selection.take holds {len(returned.take)} positions; take at most {want}")
    if both := set(returned.take) & set(returned.drop):
        raise ContractError(f"{where}: position {min(both)} is both in Selection.take and in Selection.drop")
    return returned


def check_decision(returned: object, *, plugin: str, group: Group) -> Decision:
    """A group filter's decision about `group`.

    Raises:
        ContractError: not a `Keep`, `Drop` or `KeepIfShort`, or one without a reason.
    """
    where = f"group filter of plugin {plugin}, group {group.id}"
    match returned:
        case Keep():
            pass
        case Drop(reason=reason) | KeepIfShort(reason=reason):
            check_reason(f"{where}, {type(returned).__name__}.reason", reason)
        case _:
            refuse(where, "Keep, Drop or KeepIfShort", returned, "return Keep() or Drop(reason)")
    return returned


def check_removals(returned: object, *, plugin: str, groups: Sequence[Group]) -> Sequence[Removal]:
    """The samples that a sample filter takes out of `groups`.

    Raises:
        ContractError: not a sequence of removals, an unknown group, a position out of range or named twice.
    """
    where = f"sample filter of plugin {plugin}"
    sizes = {group.id: len(group.samples) for group in groups}
    seen: set[tuple[GroupId, int]] = set()
    removals = []
    for number, removal in enumerate(check_list(where, "a list of Removal", returned)):
        here = f"{where}, item {number}"
        if not isinstance(removal, Removal):
            refuse(here, "a Removal", removal, "return [Removal(group.id, position, reason)]")
        check_id(f"{here}, Removal.group", removal.group)
        if removal.group not in sizes:
            raise ContractError(
                f"{here}: Removal.group {removal.group} is not among the {len(sizes)} groups it was given"
            )
        check_position(f"{here}, group {removal.group}: Removal.position", removal.position, sizes[removal.group])
        check_reason(f"{here}, group {removal.group}: Removal.reason", removal.reason)
        if (key := (removal.group, removal.position)) in seen:
            raise ContractError(f"{here}: removes sample {removal.position} of group {removal.group} twice")
        seen.add(key)
        removals.append(removal)
    return removals


def check_draw(returned: object, *, plugin: str, want: int, is_held: Callable[[GroupId], bool]) -> Draw:
    """What a buffer hands out when at most `want` groups were wanted.

    Raises:
        ContractError: not a `Draw`, too many groups, one twice, one that the buffer was not given or gave away before,
            or weights that are not one finite number, 0 or more, a group.
    """
    where = f"buffer of plugin {plugin}, {want} groups wanted"
    if not isinstance(returned, Draw):
        refuse(where, "a Draw", returned, "return Draw(groups, weights)")
    groups = check_list(f"{where}: Draw.groups", "a list of Group", returned.groups)
    weights = check_list(f"{where}: Draw.weights", "a list of float", returned.weights)
    if len(groups) > want:
        raise ContractError(f"{where}: Draw.groups holds {len(groups)} groups; hand out at most {want}")
    if len(weights) != len(groups):
        raise ContractError(f"{where}: Draw.weights holds {len(weights)} weights for {len(groups)} groups")
    seen: set[GroupId] = set()
    for number, (group, weight) in enumerate(zip(groups, weights, strict=True)):
        if not isinstance(group, Group):
            refuse(f"{where}: Draw.groups, item {number}", "a Group", group)
        if group.id in seen:
            raise ContractError(f"{where}: Draw.groups holds group {group.id} twice")
        if not is_held(group.id):
            raise ContractError(
                f"{where}: Draw.groups holds group {group.id}, which it was not given or gave away before"
            )
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            refuse(f"{where}, group {group.id}: Draw.weights", "a float", weight)
        if not (isfinite(weight) and weight >= 0):
            raise ContractError(f"{where}, group {group.id}: its weight is {weight}; weights are finite, 0 or more")
        seen.add(group.id)
    return returned


def check_evicted(returned: object, *, plugin: str, is_held: Callable[[GroupId], bool]) -> Mapping[GroupId, str]:
    """What a buffer removed, and why.

    Raises:
        ContractError: not a mapping of identities to short texts, or of a group that it does not hold.
    """
    where = f"buffer of plugin {plugin}, evict"
    if not isinstance(returned, Mapping):
        refuse(where, "a dict of GroupId to reason", returned, "return {} when nothing is removed")
    for group_id, reason in returned.items():
        check_id(where, group_id)
        check_reason(f"{where}, group {group_id}", reason)
        if not is_held(group_id):
            raise ContractError(f"{where}: it does not hold group {group_id}")
    return returned
