"""From prepared groups to the shares of optimizer steps, without torch: whole groups, balanced, none left out.

Example:

    for groups in steps_of(prepared, num_steps=2):
        batches = split_step(groups, 2, rollout_id=3)         # of two shares, a TrainBatch each
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence

from slime_core.errors import ContractError
from slime_core.roles import TrainBatch
from slime_core.roles.sample_field import INPUTS, Carried, SampleField
from slime_core.train.balance import Cost, karmarkar_karp
from slime_core.train.prepare import TrainGroup, TrainSample


def steps_of(groups: Sequence[TrainGroup], num_steps: int) -> Iterator[Sequence[TrainGroup]]:
    """Deal groups to optimizer steps in turn, so that steps differ by one group at most; empty steps are left out."""
    for step in range(num_steps):
        if share := groups[step::num_steps]:
            yield share


def split_step(
    groups: Sequence[TrainGroup],
    count: int,
    rollout_id: int,
    cost: Cost | None = None,
    reads: frozenset[SampleField] = frozenset(),
    step: int = 0,
) -> list[TrainBatch]:
    """One step's groups as one batch a share, whole and in their order; the step is number `step` of its rollout.

    Longest first, each to the share with the fewest tokens so far; with a `cost`, by that and by `karmarkar_karp`.
    Groups of equal rewards, which most trainers need not compute, are dealt after the others and balanced among
    themselves. Denominators (`step_tokens`, `step_samples`)
    count the whole step by the masks as they are trained with, and samples of one execution (`rollout_id`) as one. A
    sample with `remove_sample` keeps its reward for the normalisation and has a mask of zeros; one without a reward is
    left out, and so is a group without a single response token. What the trainer `reads` of a sample goes with it, as
    it is.

    Raises:
        ContractError: a sample has inputs that the trainer does not read.
    """
    _check_inputs(groups, reads)
    shares: list[list[int]] = [[] for _ in range(count)]
    for differs in (True, False):
        numbers = [number for number, group in enumerate(groups) if _differs(group) is differs and _has_tokens(group)]
        those = [groups[number] for number in numbers]
        if cost is None:
            dealt = _longest_first([_tokens(group) for group in those], count)
        else:
            dealt = karmarkar_karp([_cost(group, cost) for group in those], count)
        for share, places in zip(shares, dealt, strict=True):
            share += [numbers[place] for place in places]
    rollouts = _rollouts(groups)
    trained = [0] * len(rollouts)
    for group in groups:
        for each in group.samples:
            if each.reward is not None:
                trained[rollouts[id(each)]] += sum(each.loss_mask)
    totals = (sum(trained), sum(count > 0 for count in trained))
    numbers_of = rollout_id, step
    return [_columns(groups, sorted(share), rollouts, totals, numbers_of, reads) for share in shares]


def _check_inputs(groups: Sequence[TrainGroup], reads: frozenset[SampleField]) -> None:
    unread = [field for field in SampleField if field in INPUTS - reads]
    for group in groups:
        for sample in (each.sample for each in group.samples if each.reward is not None):
            for field in unread:
                if getattr(sample, field.value) is not None:
                    raise ContractError(
                        f"sample {sample.index} of group {sample.group_index} has {field.value}, which the trainer "
                        "does not read: its log-probs would be those of the text alone; choose a trainer whose spec "
                        f"has SampleField.{field.name} among what it reads, or a generator that does not set it"
                    )


def _longest_first(sizes: Sequence[int], ranks: int) -> list[list[int]]:
    shares: list[list[int]] = [[] for _ in range(ranks)]
    load = [0] * ranks
    for place in sorted(range(len(sizes)), key=lambda each: -sizes[each]):
        least = load.index(min(load))
        shares[least].append(place)
        load[least] += sizes[place]
    return shares


def _cost(group: TrainGroup, cost: Cost) -> float:
    """Cost of a group: of each distinct prompt with its responses."""
    return sum(
        cost.of(len(prompt), [each.sample.response_length for each in those])
        for prompt, those in _by_prompt(group).items()
    )


def _rollouts(groups: Sequence[TrainGroup]) -> dict[int, int]:
    """Number of each sample's rollout, by `id` of the sample."""
    numbers: dict[tuple[int, int | None, int], int] = {}
    found: dict[int, int] = {}
    for group_number, group in enumerate(groups):
        for index, each in enumerate(group.samples):
            shared = each.sample.rollout_id
            key = (group_number, shared, -1 if shared is not None else index)
            found[id(each)] = numbers.setdefault(key, len(numbers))
    return found


def _by_prompt(group: TrainGroup) -> dict[tuple[int, ...], list[TrainSample]]:
    """A group's scored samples by the ids of their prompt."""
    found: dict[tuple[int, ...], list[TrainSample]] = {}
    for each in group.samples:
        if each.reward is not None:
            found.setdefault(tuple(each.sample.tokens[: each.sample.prompt_length]), []).append(each)
    return found


def _tokens(group: TrainGroup) -> int:
    """What a group costs: its distinct prompts once, and all responses."""
    siblings = _by_prompt(group)
    responses = sum(each.sample.response_length for those in siblings.values() for each in those)
    return sum(map(len, siblings)) + responses


def _has_tokens(group: TrainGroup) -> bool:
    return any(each.sample.response_length for each in group.samples if each.reward is not None)


def _differs(group: TrainGroup) -> bool:
    """Whether there is something to learn from comparing its samples."""
    return len({each.reward for each in group.samples if each.reward is not None}) > 1


def _columns(
    groups: Sequence[TrainGroup],
    share: Sequence[int],
    rollouts: Mapping[int, int],
    totals: tuple[int, int],
    numbers_of: tuple[int, int],
    reads: frozenset[SampleField],
) -> TrainBatch:
    prompts: list[tuple[int, ...]] = []
    prompt_index, group_index, rollout_index, lengths = array("i"), array("i"), array("i"), array("i")
    rewards, importance = array("d"), array("d")
    tokens, mask, log_probs = array("i"), array("b"), array("f")
    # Every rank has every column, also one without a group.
    first = next((each for group in groups for each in group.samples), None)
    columns_S = {name: array("d") for name in (first.columns_S if first else ())}
    columns_T = {name: array("f") for name in (first.columns_T if first else ())}
    fields_S: dict[SampleField, list[Carried]] = {field: [] for field in SampleField if field in reads}
    for number in share:
        for prompt, siblings in _by_prompt(groups[number]).items():
            for each in siblings:
                sample = each.sample
                prompt_index.append(len(prompts))
                group_index.append(number)
                rollout_index.append(rollouts[id(each)])
                lengths.append(sample.response_length)
                rewards.append(each.reward or 0.0)
                importance.append(groups[number].weight)
                tokens.extend(sample.tokens[sample.prompt_length :])
                mask.extend(each.loss_mask)
                log_probs.extend(sample.rollout_log_probs or [0.0] * sample.response_length)
                for field, carried in fields_S.items():
                    carried.append(getattr(sample, field.value))
                for name, column in columns_S.items():
                    column.append(each.columns_S[name])
                for name, column in columns_T.items():
                    column.extend(each.columns_T[name])
            prompts.append(prompt)
    return TrainBatch(
        prompts_P=tuple(prompts),
        prompt_index_S=prompt_index,
        group_index_S=group_index,
        rollout_index_S=rollout_index,
        response_lengths_S=lengths,
        rewards_S=rewards,
        weights_S=importance,
        tokens_T=tokens,
        loss_mask_T=mask,
        rollout_log_probs_T=log_probs,
        step_tokens=totals[0],
        step_samples=totals[1],
        rollout_id=numbers_of[0],
        step=numbers_of[1],
        columns_S=columns_S,
        columns_T=columns_T,
        fields_S={field: tuple(carried) for field, carried in fields_S.items()},
    )
