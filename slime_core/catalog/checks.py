"""Checks what engines, generators, rewards, filters, buffers and data sources return, and names the plugin at fault.

The core calls a check where it takes over a plugin's result. The check returns the same value with its type
narrowed, or raises a ContractError: what was expected, what was returned, and how to fix it.

Example:

    samples = check_generated(await generator(sample, ctx), plugin="slime-agent-openai", sample=sample)
    decision = check_decision(group_filter(group, ctx), plugin="slime-filter-std", group=group)
"""

import inspect
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite, nan
from typing import NoReturn, cast

from slime_core.errors import ContractError, PluginError, SlimeError, error_text
from slime_core.roles import (
    Decision,
    Draw,
    Drop,
    EngineExtras,
    FinishReason,
    GenerateChunk,
    GenerateOutput,
    GenerateRequest,
    Keep,
    KeepIfShort,
    Removal,
    Selection,
)
from slime_core.sample import Group, GroupId, PrefixCacheInfo, Sample, SpecInfo, Status, all_finite, scalar, unpackable
from slime_core.score import NotApplicable, Score, Unscored, Verdict

# Errors of checks: the place, the expected and the returned value, and the fix.


@contextmanager
def plugin_errors(role: str, plugin: str) -> Iterator[None]:
    """Convert errors of the plugin code in this block to PluginErrors that name the plugin.

    Raises:
        PluginError: the code raised any other exception, including SystemExit, which would end the run as a success.
    """
    try:
        yield
    except SlimeError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"{role} of plugin {plugin} raised {type(error).__name__}: {error_text(error)}") from error


def refuse(where: str, expected: str, returned: object, hint: str = "") -> NoReturn:
    """Raise a ContractError about a value of the wrong kind."""
    if inspect.iscoroutine(returned):
        returned.close()  # or Python warns about it a second time
        hint = "an `await` is missing, or the function must not be `async def`"
    text = repr(returned)
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    advice = f"; {hint}" if hint else ""
    raise ContractError(f"{where}: expected {expected}, got {type(returned).__name__} {shown}{advice}")


def check_list(where: str, expected: str, returned: object) -> Sequence[object]:
    """Return a sequence that is not a string."""
    if not isinstance(returned, Sequence) or isinstance(returned, str | bytes):
        refuse(where, expected, returned)
    return returned


def check_reason(where: str, reason: object) -> None:
    """Check for a short, countable text."""
    if not isinstance(reason, str) or not reason:
        refuse(where, "a short text", reason)


def check_position(where: str, position: object, size: int) -> None:
    """Check for a position in a sequence of length `size`."""
    kind: object = type(position)
    if kind is not int or not isinstance(position, int):
        refuse(where, "positions of type int", position, "use int(position)")
    if not 0 <= position < size:
        raise ContractError(f"{where} holds position {position}; positions run from 0 to {size - 1}")


def check_id(where: str, group_id: object) -> None:
    """Check for a `GroupId`."""
    if not isinstance(group_id, GroupId):
        refuse(where, "a GroupId", group_id, "use group.id")


# Results of filters and buffers.


def check_selection(returned: object, *, plugin: str, held: int, want: int) -> Selection:
    """Check a buffer filter's choice of at most `want` of `held` groups."""
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
    """Check a group filter's decision about `group`."""
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
    """Check the samples that a sample filter removes from `groups`."""
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
    """Check a buffer's draw of at most `want` groups."""
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
    """Check the groups that a buffer removed, and their reasons."""
    where = f"buffer of plugin {plugin}, evict"
    if not isinstance(returned, Mapping):
        refuse(where, "a dict of GroupId to reason", returned, "return {} when nothing is removed")
    for group_id, reason in returned.items():
        check_id(where, group_id)
        check_reason(f"{where}, group {group_id}", reason)
        if not is_held(group_id):
            raise ContractError(f"{where}: it does not hold group {group_id}")
    return returned


# Extras of an engine's output: every column has the right length, and every wanted extra is present.

KINDS = {
    "versions": tuple,
    "prefix_cache_info": PrefixCacheInfo,
    "spec_info": SpecInfo,
    "routed_experts": array,
    "top_p_token_ids": array,
    "top_p_token_offsets": array,
    "prompt_log_probs": Sequence,
    "retractions": int,
}
"""Type of each field that is not None."""


def check_extras(where: str, output: GenerateOutput, request: GenerateRequest) -> None:
    """Check that an output's extras match its tokens and include all that the request wants."""
    extras: object = output.extras
    if extras is None:
        extras = EngineExtras()
    elif not isinstance(extras, EngineExtras):
        refuse(f"{where}, extras", "an EngineExtras, or None", extras)
    for name, kind in KINDS.items():
        value = getattr(extras, name)
        if value is not None and not isinstance(value, kind):
            refuse(f"{where}, extras.{name}", f"a value of {kind.__name__}", value)
    missing = sorted(extra.value for extra in request.want if extras.lacks(extra)) if len(output.tokens) else []
    if missing:
        raise ContractError(f"{where}: the request wants {', '.join(missing)}, and the extras have none")
    if problems := list(_shape_problems(extras, output, len(request.prompt))):
        raise ContractError(f"{where}, extras: {'; '.join(problems)}")


def _shape_problems(extras: EngineExtras, output: GenerateOutput, prompt: int) -> Iterator[str]:
    count = len(output.tokens)
    yield from _version_problems(extras, output)
    if extras.routed_experts is not None:
        seen, size = max(0, prompt + count - 1), len(extras.routed_experts)
        if size % seen if seen else size:
            yield f"routed_experts has {size} entries for {seen} tokens (all but the last); expected a multiple"
    if (extras.top_p_token_ids is None) is not (extras.top_p_token_offsets is None):
        yield "one of top_p_token_ids and top_p_token_offsets is there without the other"
    elif extras.top_p_token_ids is not None and extras.top_p_token_offsets is not None:
        offsets, size = extras.top_p_token_offsets.tolist(), len(extras.top_p_token_ids)
        if len(offsets) != count + 1 or offsets != sorted(offsets) or (offsets[0], offsets[-1]) != (0, size):
            yield f"top_p_token_offsets must be {count + 1} ascending numbers from 0 to {size}, the end of the ids"
    if extras.prompt_log_probs is not None:
        size = len(extras.prompt_log_probs)
        if size != max(0, prompt - 1):
            yield f"prompt_log_probs has {size} entries for a prompt of {prompt} tokens; expected {max(0, prompt - 1)}"
        if not all_finite(extras.prompt_log_probs):
            yield "prompt_log_probs holds NaN or infinity"


def _version_problems(extras: EngineExtras, output: GenerateOutput) -> Iterator[str]:
    if not extras.versions:
        return
    counts, versions = ([span[part] for span in extras.versions] for part in range(2))
    if sum(counts) != len(output.tokens) or min(counts) < 1:
        yield f"versions are of {counts} tokens, and there are {len(output.tokens)}"
    if versions != sorted(set(versions)):
        yield f"versions are {versions}; expected the oldest first, each once"
    if min(versions) != output.weight_version:
        yield f"versions are {versions}, and weight_version is {output.weight_version}; expected the oldest of them"


# Results of engines, generators, rewards and data sources.

_NUMBERS = frozenset({float, int})
LARGEST_VERDICT = 4 << 20
"""Maximum total characters of a reason, its detail and the names of components."""


def check_output(returned: object, *, plugin: str, request: GenerateRequest) -> GenerateOutput:
    """Check an engine's output for a request."""
    where = f"engine of plugin {plugin}"
    if not isinstance(returned, GenerateOutput):
        refuse(where, "a GenerateOutput", returned)
    _check_tokens(where, returned, request.sampling.max_new_tokens)
    if not isinstance(returned.finish, FinishReason):
        refuse(f"{where}, finish", "a FinishReason", returned.finish)
    if returned.extras is not None or request.want:
        check_extras(where, returned, request)
    return returned


def check_chunk(returned: object, *, plugin: str, request: GenerateRequest, tokens_before: int) -> GenerateChunk:
    """Check a streamed chunk for a request, after chunks with `tokens_before` tokens in total."""
    where = f"engine of plugin {plugin} (stream)"
    if not isinstance(returned, GenerateChunk):
        refuse(where, "a GenerateChunk", returned)
    _check_tokens(where, returned, request.sampling.max_new_tokens, tokens_before)
    if returned.finish is None and not len(returned.tokens):
        raise ContractError(f"{where}: a part before the last has no tokens; give one when there are some")
    if returned.finish is not None and not isinstance(returned.finish, FinishReason):
        refuse(f"{where}, finish", "a FinishReason, or None before the end", returned.finish)
    return returned


def _check_tokens(where: str, returned: GenerateOutput | GenerateChunk, budget: int, tokens_before: int = 0) -> None:
    tokens = len(check_list(f"{where}, tokens", "token ids", returned.tokens))
    log_probs = check_list(f"{where}, log_probs", "log-probs", returned.log_probs)
    if len(log_probs) != tokens:
        raise ContractError(f"{where}: {len(log_probs)} log_probs for {tokens} tokens")
    if tokens_before + tokens > budget:
        raise ContractError(f"{where}: {tokens_before + tokens} tokens; max_new_tokens is {budget}")
    if not _is_finite(log_probs):
        raise ContractError(f"{where}: log_probs holds NaN, infinity or something that is not a number")
    version: object = returned.weight_version
    if isinstance(version, bool) or not isinstance(version, int):
        refuse(f"{where}, weight_version", "an int", version)


def check_generated(returned: object, *, plugin: str, sample: Sample, vocab_size: int | None = None) -> list[Sample]:
    """Check the finished samples that a generator returned for `sample`; `vocab_size` bounds the token ids."""
    where = f"generator of plugin {plugin}, {_sample_name(sample)}"
    if not isinstance(returned, list):
        refuse(where, "list[Sample]", returned, "return [sample]" if isinstance(returned, Sample) else "")
    if not returned:
        raise ContractError(f"{where}: returned an empty list; mark the sample Status.FAILED and return [sample]")
    for position, each in enumerate(returned):
        if not isinstance(each, Sample):
            refuse(f"{where}, item {position}", "a Sample", each)
        problems = list(_sample_problems(each, sample)) or list(_token_problems(each.tokens, vocab_size))
        if problems:
            raise ContractError(f"{where}, item {position}: {'; '.join(problems)}")
    if len({id(each) for each in returned}) < len(returned):
        raise ContractError(f"{where}: returned the same Sample object twice; copy it (dataclasses.replace)")
    rollout_ids = {each.rollout_id for each in returned}
    if len(returned) > 1 and (len(rollout_ids) > 1 or None in rollout_ids):
        found = ", ".join(sorted(map(str, rollout_ids)))
        raise ContractError(f"{where}: its {len(returned)} samples must share one rollout_id, found {found}")
    return returned


def as_verdict(returned: object) -> object:
    """Convert a finite number, a bool or a scalar of numpy or torch to a `Score`; return other values unchanged."""
    number = scalar(returned)
    return returned if number is None or not isfinite(number) else Score(number)


def check_verdict(returned: object, *, plugin: str, sample: Sample) -> Verdict:
    """Check a reward's verdict on `sample`. Numbers, bools and scalars of numpy or torch become a `Score`."""
    return _verdict(returned, f"reward of plugin {plugin}, {_sample_name(sample)}")


def check_verdicts(returned: object, *, plugin: str, samples: Sequence[Sample]) -> Sequence[Verdict]:
    """Check a group reward's verdicts on `samples`, one per sample, in order."""
    where = f"group reward of plugin {plugin}, group {samples[0].group_index}"
    if callable(as_list := getattr(returned, "tolist", None)):  # an array of numpy or torch
        returned = as_list()
    answers = check_list(where, "a list of numbers, Score, Unscored or NotApplicable", returned)
    if len(answers) != len(samples):
        raise ContractError(f"{where}: {len(answers)} verdicts for {len(samples)} samples; return one a sample")
    return [_verdict(answer, f"{where}, {_sample_name(each)}") for answer, each in zip(answers, samples, strict=True)]


def check_label_result(returned: object) -> str | None:
    """Check the result of `ChecksLabels.check_label`."""
    if returned is not None:
        check_reason("check_label", returned)
    return cast(str | None, returned)


def check_drawn(returned: object, *, plugin: str, count: int) -> list[Group]:
    """Check the `count` groups that a data source drew."""
    where = f"data source of plugin {plugin}"
    if not isinstance(returned, list):
        refuse(where, "list[Group]", returned)
    if len(returned) != count:
        raise ContractError(f"{where}: drew {len(returned)} groups; {count} were requested, and sources never end")
    for position, group in enumerate(returned):
        if not isinstance(group, Group):
            refuse(f"{where}, item {position}", "a Group", group)
        if problems := list(_draw_problems(group)):
            raise ContractError(f"{where}, group {group.id}: {'; '.join(problems)}")
    ids = [group.id for group in returned]
    if len(set(ids)) < count:
        twice = next(each for each in ids if ids.count(each) > 1)
        raise ContractError(f"{where}: drew group {twice} twice; each draw needs its own GroupId (GroupId.draw)")
    return returned


def _is_finite(values: Sequence[object]) -> bool:
    try:
        total = sum(cast(Sequence[float], values))
    except (TypeError, OverflowError):
        total = nan
    if type(total) in _NUMBERS and isfinite(total):
        return True
    return all(isinstance(each, float | int) and isfinite(each) for each in values)


def _draw_problems(group: Group) -> Iterator[str]:
    if not group.samples:
        yield "it has no samples"
    for position, sample in enumerate(group.samples):
        if not isinstance(sample, Sample):
            refuse(f"group {group.id}, sample {position}", "a Sample", sample)
        if sample.status is not Status.PENDING:
            yield f"sample {position} is {sample.status.name}; drawn samples are PENDING"
        if sample.index is None or sample.group_index is None:
            yield f"sample {position} has no index or no group_index; number both"


def _sample_problems(made: Sample, given: Sample) -> Iterator[str]:
    if made.status is Status.PENDING:
        yield "status is still PENDING; set COMPLETED, TRUNCATED, ABORTED or FAILED"
    if made.group_index != given.group_index:
        yield f"group_index changed from {given.group_index} to {made.group_index}; samples stay in it"
    if made.response_length > 0 and made.prompt_length == 0:
        yield "tokens hold no prompt before the response"
    if strange := [version for version in made.weight_versions if not version.isdecimal()]:
        yield f"weight version {strange[0]!r} is not a number"
    yield from made.problems()


def _token_problems(tokens: Sequence[int], vocab_size: int | None) -> Iterator[str]:
    if unpackable("I", tokens):  # in two thirds of the time that `min` takes
        yield f"tokens holds {min(tokens)}; token ids are 0 or more"
    if vocab_size is not None and (high := max(tokens, default=0)) >= vocab_size:
        yield f"tokens holds {high}; the model has {vocab_size} tokens (vocab_size), numbered from 0"


def _verdict(returned: object, where: str) -> Verdict:
    returned = as_verdict(returned)
    match returned:
        case Score(value=value, components=components):
            for name in components:
                if not isinstance(name, str):
                    refuse(f"{where}, Score.components", "names that are texts", name)
            if not all(isinstance(number, int | float) for number in (value, *components.values())):
                parts = {name: _float(f"{where}, Score {name!r}", number) for name, number in components.items()}
                returned = Score(_float(f"{where}, Score 'value'", value), parts)
            size = sum(map(len, components))
        case Unscored(reason=reason):
            check_reason(f"{where}, Unscored.reason", reason)
            size = len(reason) + len(returned.detail)
        case NotApplicable():
            size = 0
        case _:
            hint = "return Unscored(reason) when there is no score" if scalar(returned) or returned is None else ""
            refuse(where, "a finite number, Score, Unscored or NotApplicable", returned, hint)
    if size > LARGEST_VERDICT:
        raise ContractError(f"{where}: its answer holds {size} characters of text; reasons and names are short")
    return returned


def _float(where: str, value: object) -> float:
    number = scalar(value)
    if number is None:
        refuse(where, "a float", value, "pass float(value)")
    return number


def _sample_name(sample: Sample) -> str:
    return f"sample {sample.index} of group {sample.group_index}"
