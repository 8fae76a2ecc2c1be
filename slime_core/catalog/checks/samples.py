"""What engines, generators, rewards and data sources return, checked where the core takes it over.

samples = check_generated(await generator(sample, ctx), plugin="slime-agent-openai", sample=sample)
"""

from collections.abc import Iterator, Sequence
from math import isfinite, nan
from typing import cast

from slime_core._numbers import scalar, unpackable
from slime_core.catalog.checks._refuse import check_list, check_reason, refuse
from slime_core.catalog.checks.extras import check_extras
from slime_core.errors import ContractError
from slime_core.roles import FinishReason, GenerateChunk, GenerateOutput, GenerateRequest
from slime_core.sample import Group, Sample, Status
from slime_core.score import NotApplicable, Score, Unscored, Verdict

_NUMBERS = frozenset({float, int})
LARGEST_VERDICT = 4 << 20
"""Characters of a reason, its detail and the names of components."""


def check_output(returned: object, *, plugin: str, request: GenerateRequest) -> GenerateOutput:
    """What an engine generated for a request.

    Raises:
        ContractError: not a `GenerateOutput`, tokens and log-probs of different lengths, more tokens than allowed, a
            log-prob that is not finite, a weight version that is not a number, or extras that do not fit.
    """
    where = f"engine of plugin {plugin}"
    if not isinstance(returned, GenerateOutput):
        refuse(where, "a GenerateOutput", returned)
    _check_tokens(where, returned, request.sampling.max_new_tokens)
    if not isinstance(returned.finish, FinishReason):
        refuse(f"{where}, finish", "a FinishReason", returned.finish)
    if returned.extras is not None or request.want:
        check_extras(where, returned, request)
    return returned


def check_chunk(returned: object, *, plugin: str, request: GenerateRequest, before: int) -> GenerateChunk:
    """A part of what an engine generates for a request, after parts with `before` tokens.

    Raises:
        ContractError: not a `GenerateChunk`, one without tokens before the end, or what `check_output` refuses.
    """
    where = f"engine of plugin {plugin} (stream)"
    if not isinstance(returned, GenerateChunk):
        refuse(where, "a GenerateChunk", returned)
    _check_tokens(where, returned, request.sampling.max_new_tokens, before)
    if returned.finish is None and not len(returned.tokens):
        raise ContractError(f"{where}: a part before the last has no tokens; give one when there are some")
    if returned.finish is not None and not isinstance(returned.finish, FinishReason):
        refuse(f"{where}, finish", "a FinishReason, or None before the end", returned.finish)
    return returned


def _check_tokens(where: str, returned: GenerateOutput | GenerateChunk, budget: int, before: int = 0) -> None:
    """See that tokens and log-probs agree, are not too many, and name their weights."""
    tokens = len(check_list(f"{where}, tokens", "token ids", returned.tokens))
    log_probs = check_list(f"{where}, log_probs", "log-probs", returned.log_probs)
    if len(log_probs) != tokens:
        raise ContractError(f"{where}: {len(log_probs)} log_probs for {tokens} tokens")
    if before + tokens > budget:
        raise ContractError(f"{where}: {before + tokens} tokens; max_new_tokens is {budget}")
    if not _is_finite(log_probs):
        raise ContractError(f"{where}: log_probs holds NaN, infinity or something that is not a number")
    version: object = returned.weight_version
    if isinstance(version, bool) or not isinstance(version, int):
        refuse(f"{where}, weight_version", "an int", version)


def check_generated(returned: object, *, plugin: str, sample: Sample, vocab_size: int | None = None) -> list[Sample]:
    """The finished samples that a generator made of `sample`.

    Args:
        returned: what it returned.
        plugin: whose it is.
        sample: what it was given.
        vocab_size: how many tokens the model has; None: nobody knows.

    Raises:
        ContractError: not a list of samples, an empty one, one is unfinished or inconsistent, has a token that the
            model does not have, or siblings of one rollout do not share `rollout_id`.
    """
    where = f"generator of plugin {plugin}, {_named(sample)}"
    if not isinstance(returned, list):
        refuse(where, "list[Sample]", returned, "return [sample]" if isinstance(returned, Sample) else "")
    if not returned:
        raise ContractError(f"{where}: returned an empty list; mark the sample Status.FAILED and return [sample]")
    for position, each in enumerate(returned):
        if not isinstance(each, Sample):
            refuse(f"{where}, item {position}", "a Sample", each)
        problems = list(_unfinished(each, sample)) or list(_unknown(each.tokens, vocab_size))
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
    """A finite number, a bool or a scalar of numpy or torch as a `Score`; anything else as it is."""
    number = scalar(returned)
    return returned if number is None or not isfinite(number) else Score(number)


def check_verdict(returned: object, *, plugin: str, sample: Sample) -> Verdict:
    """A reward's answer about `sample`; a number, a bool or a scalar of numpy or torch becomes a `Score`.

    Raises:
        ContractError: none of these, `Unscored` or `NotApplicable`, or one with values of the wrong type.
    """
    return _verdict(returned, f"reward of plugin {plugin}, {_named(sample)}")


def check_verdicts(returned: object, *, plugin: str, samples: Sequence[Sample]) -> Sequence[Verdict]:
    """A group reward's answers about `samples`, one each, in their order.

    Raises:
        ContractError: not a sequence, not one verdict a sample, or something that `check_verdict` refuses.
    """
    where = f"group reward of plugin {plugin}, group {samples[0].group_index}"
    if callable(as_list := getattr(returned, "tolist", None)):  # an array of numpy or torch
        returned = as_list()
    answers = check_list(where, "a list of numbers, Score, Unscored or NotApplicable", returned)
    if len(answers) != len(samples):
        raise ContractError(f"{where}: {len(answers)} verdicts for {len(samples)} samples; return one a sample")
    return [_verdict(answer, f"{where}, {_named(each)}") for answer, each in zip(answers, samples, strict=True)]


def checked_label(returned: object) -> str | None:
    """What `ChecksLabels.check_label` returned.

    Raises:
        ContractError: it is neither None nor a text.
    """
    if returned is not None:
        check_reason("check_label", returned)
    return cast(str | None, returned)


def check_drawn(returned: object, *, plugin: str, count: int) -> list[Group]:
    """What a data source drew when `count` groups were asked for.

    Raises:
        ContractError: not a list of `count` groups, an empty group, a sample that is not pending or not numbered, or
            one identity twice.
    """
    where = f"data source of plugin {plugin}"
    if not isinstance(returned, list):
        refuse(where, "list[Group]", returned)
    if len(returned) != count:
        raise ContractError(f"{where}: drew {len(returned)} groups; {count} were asked for, and sources never end")
    for position, group in enumerate(returned):
        if not isinstance(group, Group):
            refuse(f"{where}, item {position}", "a Group", group)
        if problems := list(_undrawable(group)):
            raise ContractError(f"{where}, group {group.id}: {'; '.join(problems)}")
    ids = [group.id for group in returned]
    if len(set(ids)) < count:
        twice = next(each for each in ids if ids.count(each) > 1)
        raise ContractError(f"{where}: drew group {twice} twice; every draw is a group of its own (GroupId.draw)")
    return returned


def _is_finite(values: Sequence[object]) -> bool:
    """Whether all are finite numbers; a sum that is a finite float or int says so at once, 25 times as fast."""
    try:
        total = sum(cast(Sequence[float], values))
    except (TypeError, OverflowError):
        total = nan
    if type(total) in _NUMBERS and isfinite(total):
        return True
    return all(isinstance(each, float | int) and isfinite(each) for each in values)


def _undrawable(group: Group) -> Iterator[str]:
    if not group.samples:
        yield "it has no samples"
    for position, sample in enumerate(group.samples):
        if not isinstance(sample, Sample):
            refuse(f"group {group.id}, sample {position}", "a Sample", sample)
        if sample.status is not Status.PENDING:
            yield f"sample {position} is {sample.status.name}; drawn samples are PENDING"
        if sample.index is None or sample.group_index is None:
            yield f"sample {position} has no index or no group_index; number both"


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


def _unknown(tokens: Sequence[int], vocab_size: int | None) -> Iterator[str]:
    """Why a trainer could not look up the tokens."""
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


def _named(sample: Sample) -> str:
    return f"sample {sample.index} of group {sample.group_index}"
