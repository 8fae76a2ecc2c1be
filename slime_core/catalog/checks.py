"""What plugins return, checked where the core takes it over, so that the error names the culprit.

    samples = check_generated(await generator(sample, ctx), plugin="slime-agent-openai", sample=sample)

A check returns what it was given, typed; it changes nothing.
"""

import inspect
from collections.abc import Iterator, Sequence
from typing import NoReturn

from slime_core.errors import ContractError
from slime_core.roles import Decision, Drop, Keep, KeepIfShort, Selection
from slime_core.sample import Group, Sample, Status
from slime_core.score import NotApplicable, Score, Unscored, Verdict


def check_generated(returned: object, *, plugin: str, sample: Sample) -> list[Sample]:
    """The finished samples that a generator made of `sample`.

    Raises:
        ContractError: not a list of samples, an empty one, one is unfinished or inconsistent, or siblings of
            one rollout do not share `rollout_id`.
    """
    where = f"generator of plugin {plugin}, {_named(sample)}"
    if not isinstance(returned, list):
        _refuse(where, "list[Sample]", returned, "return [sample]" if isinstance(returned, Sample) else "")
    if not returned:
        raise ContractError(f"{where}: returned an empty list; mark the sample Status.FAILED and return [sample]")
    for position, each in enumerate(returned):
        if not isinstance(each, Sample):
            _refuse(f"{where}, item {position}", "a Sample", each)
        problems = list(_unfinished(each, sample))
        if problems:
            raise ContractError(f"{where}, item {position}: {'; '.join(problems)}")
    if len({id(each) for each in returned}) < len(returned):
        raise ContractError(f"{where}: returned the same Sample object twice; copy it (dataclasses.replace)")
    rollout_ids = {each.rollout_id for each in returned}
    if len(returned) > 1 and (len(rollout_ids) > 1 or None in rollout_ids):
        found = ", ".join(sorted(map(str, rollout_ids)))
        raise ContractError(f"{where}: its {len(returned)} samples must share one rollout_id, found {found}")
    return returned


def check_verdict(returned: object, *, plugin: str, sample: Sample) -> Verdict:
    """A reward's answer about `sample`.

    Raises:
        ContractError: not a `Score`, `Unscored` or `NotApplicable`, or one with values of the wrong type.
    """
    where = f"reward of plugin {plugin}, {_named(sample)}"
    match returned:
        case Score(value=value, components=components):
            for name, number in (("value", value), *components.items()):
                if not isinstance(number, int | float):
                    _refuse(f"{where}, Score {name!r}", "a float", number, f"pass float({name})")
        case Unscored(reason=reason):
            _check_reason(where, "Unscored", reason)
        case NotApplicable():
            pass
        case _:
            _refuse(where, "Score, Unscored or NotApplicable", returned, _verdict_hint(returned))
    return returned


def check_selection(returned: object, *, plugin: str, held: int, want: int) -> Selection:
    """A buffer filter's choice among `held` groups when `want` were wanted.

    Raises:
        ContractError: more than `want` taken, a position out of range or named twice.
    """
    where = f"buffer filter of plugin {plugin}, {held} groups held, {want} wanted"
    if not isinstance(returned, Selection):
        _refuse(where, "a Selection", returned, "return Selection(take=[...], drop=[...])")
    for field, positions in (("take", returned.take), ("drop", returned.drop)):
        _check_positions(f"{where}: Selection.{field}", positions, held)
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
            _check_reason(where, type(returned).__name__, reason)
        case _:
            _refuse(where, "Keep, Drop or KeepIfShort", returned, "return Keep() or Drop(reason)")
    return returned


def _unfinished(made: Sample, asked: Sample) -> Iterator[str]:
    """Why a generated sample cannot be scored and trained on."""
    if made.status is Status.PENDING:
        yield "status is still PENDING; set COMPLETED, TRUNCATED, ABORTED or FAILED"
    if made.group_index != asked.group_index:
        yield f"group_index changed from {asked.group_index} to {made.group_index}; samples stay in it"
    if made.response_length > 0 and made.prompt_length == 0:
        yield "tokens hold no prompt before the response"
    if strange := [version for version in made.weight_versions if not version.isdecimal()]:
        yield f"weight version {strange[0]!r} is not a number"
    yield from made.problems()


def _check_positions(where: str, positions: Sequence[int], held: int) -> None:
    seen: set[int] = set()
    for position in positions:
        kind: object = type(position)
        if kind is not int:
            _refuse(where, "positions of type int", position, "use int(position)")
        if not 0 <= position < held:
            raise ContractError(f"{where} holds position {position}; positions run from 0 to {held - 1}")
        if position in seen:
            raise ContractError(f"{where} holds position {position} twice")
        seen.add(position)


def _check_reason(where: str, kind: str, reason: object) -> None:
    if not isinstance(reason, str) or not reason:
        _refuse(f"{where}, {kind}.reason", "a short text", reason)


def _verdict_hint(returned: object) -> str:
    if isinstance(returned, bool | int | float):
        return f"return Score({float(returned)})"
    if returned is None:
        return "return Unscored(reason) when there is no score"
    return ""


def _refuse(where: str, expected: str, returned: object, hint: str = "") -> NoReturn:
    if inspect.iscoroutine(returned):
        returned.close()  # or Python warns about it a second time
        hint = "an `await` is missing"
    text = repr(returned)
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    advice = f"; {hint}" if hint else ""
    raise ContractError(f"{where}: expected {expected}, got {type(returned).__name__} {shown}{advice}")


def _named(sample: Sample) -> str:
    return f"sample {sample.index} of group {sample.group_index}"
