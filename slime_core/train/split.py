"""From groups to the ranks' shares of optimizer steps, without torch: whole groups, balanced by tokens, none left out.

Example:

    for groups, weights in steps_of(draw.groups, draw.weights, num_steps=2):
        batches = split_step(groups, weights, ranks=2)          # one TrainBatch a rank
"""

from array import array
from collections.abc import Iterator, Sequence

from slime_core.roles import TrainBatch
from slime_core.sample import Group, Sample, scalar_reward


def steps_of(
    groups: Sequence[Group], weights: Sequence[float], num_steps: int
) -> Iterator[tuple[Sequence[Group], Sequence[float]]]:
    """Deal groups to optimizer steps in turn, so that steps differ by one group at most; empty steps are left out."""
    for step in range(num_steps):
        if share := groups[step::num_steps]:
            yield share, weights[step::num_steps]


def split_step(groups: Sequence[Group], weights: Sequence[float], ranks: int) -> list[TrainBatch]:
    """One step's groups as one batch a rank, whole and in their order.

    Longest first, each to the rank with the fewest tokens so far. Groups of equal rewards, which most trainers need not
    compute, are dealt after the others and balanced among themselves. Denominators (`step_tokens`, `step_samples`)
    count the whole step. A sample with `remove_sample` keeps its reward for the normalisation and has a mask of zeros;
    one without a reward is left out, and so is a group without a single response token.
    """
    sizes = [_tokens(group) for group in groups]
    shares: list[list[int]] = [[] for _ in range(ranks)]
    for differs in (True, False):
        load = [0] * ranks
        numbers = [number for number, group in enumerate(groups) if _differs(group) is differs and _has_tokens(group)]
        for number in sorted(numbers, key=lambda each: -sizes[each]):
            least = load.index(min(load))
            shares[least].append(number)
            load[least] += sizes[number]
    trained = [_trained_tokens(sample) for group in groups for sample in group.samples if sample.reward is not None]
    totals = (sum(trained), sum(count > 0 for count in trained))
    return [_columns(groups, weights, sorted(share), totals) for share in shares]


def _by_prompt(group: Group) -> dict[tuple[int, ...], list[Sample]]:
    """A group's scored samples by the ids of their prompt."""
    found: dict[tuple[int, ...], list[Sample]] = {}
    for sample in group.samples:
        if sample.reward is not None:
            found.setdefault(tuple(sample.tokens[: sample.prompt_length]), []).append(sample)
    return found


def _tokens(group: Group) -> int:
    """What a group costs: its distinct prompts once, and all responses."""
    siblings = _by_prompt(group)
    return sum(map(len, siblings)) + sum(sample.response_length for each in siblings.values() for sample in each)


def _has_tokens(group: Group) -> bool:
    return any(sample.response_length for sample in group.samples if sample.reward is not None)


def _differs(group: Group) -> bool:
    """Whether there is something to learn from comparing its samples."""
    return len(set(group.rewards)) > 1


def _trained_tokens(sample: Sample) -> int:
    return 0 if sample.remove_sample else sample.effective_response_length


def _columns(
    groups: Sequence[Group], weights: Sequence[float], share: Sequence[int], totals: tuple[int, int]
) -> TrainBatch:
    prompts: list[tuple[int, ...]] = []
    prompt_index, group_index, lengths = array("i"), array("i"), array("i")
    rewards, importance = array("d"), array("d")
    tokens, mask, log_probs = array("i"), array("b"), array("f")
    for number in share:
        for prompt, siblings in _by_prompt(groups[number]).items():
            for sample in siblings:
                prompt_index.append(len(prompts))
                group_index.append(number)
                lengths.append(sample.response_length)
                rewards.append(scalar_reward(sample))
                importance.append(weights[number])
                tokens.extend(sample.tokens[sample.prompt_length :])
                mask.extend(_mask(sample))
                log_probs.extend(sample.rollout_log_probs or [0.0] * sample.response_length)
            prompts.append(prompt)
    return TrainBatch(
        prompts_P=tuple(prompts),
        prompt_index_S=prompt_index,
        group_index_S=group_index,
        response_lengths_S=lengths,
        rewards_S=rewards,
        weights_S=importance,
        tokens_T=tokens,
        loss_mask_T=mask,
        rollout_log_probs_T=log_probs,
        step_tokens=totals[0],
        step_samples=totals[1],
    )


def _mask(sample: Sample) -> Sequence[int]:
    if sample.remove_sample:
        return bytes(sample.response_length)
    return sample.loss_mask if sample.loss_mask is not None else b"\1" * sample.response_length
