"""Splits prepared groups into optimizer steps, and each step into shares for the ranks. No torch.

Groups stay whole, and every group is in exactly one share. Shares are balanced by estimated floating-point
operations. Several ranks may receive the same share and must then report the same results.

Example:

    for groups in steps_of(prepared, num_steps=2):
        batches = split_step(groups, 2, rollout_id=3)         # two shares, one TrainBatch each
"""

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from slime_core.batching.prepare import TrainGroup, TrainSample
from slime_core.errors import ConfigError, ContractError
from slime_core.roles import StepResult, TrainBatch
from slime_core.roles.trainer import INPUT_FIELDS, FieldValue, SampleField
from slime_core.sample import Json

# Shares: the part of a step that each rank computes.

T = TypeVar("T")
CLOSE = 1e-4
"""Relative difference allowed between two ranks; kernels that add in varying order do not give the same bits."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Which share of a step's samples each rank computes; ranks of one model replica have the same share."""

    share_of_rank: Sequence[int]
    """Share number of each rank; the numbers are 0 to `count` - 1."""
    plugin: str
    """Plugin of the trainer."""

    @property
    def count(self) -> int:
        """Number of shares."""
        return max(self.share_of_rank) + 1

    @property
    def reporting_ranks(self) -> Sequence[int]:
        """For each share, its first rank, whose report counts."""
        return [self.share_of_rank.index(share) for share in range(self.count)]

    def per_rank(self, of_shares: Sequence[T]) -> list[T]:
        """Return the part for each rank, from one part per share."""
        return [of_shares[share] for share in self.share_of_rank]

    def merged(self, results: Sequence[StepResult]) -> list[StepResult]:
        """Return one report per share, from one report per rank.

        Raises:
            ContractError: two ranks of one share report different values.
        """
        reporting_ranks = self.reporting_ranks
        for rank, share in enumerate(self.share_of_rank):
            first = reporting_ranks[share]
            if rank != first and (what := _difference(results[first], results[rank])) is not None:
                raise ContractError(
                    f"trainer of plugin {self.plugin}: ranks {first} and {rank} compute share {share}, but report "
                    f"different results: {what[0]} is {what[1]} on rank {first} and {what[2]} on rank {rank}. Sum or "
                    "broadcast the results among the ranks of a replica"
                )
        return [results[rank] for rank in reporting_ranks]


def _difference(one: StepResult, other: StepResult) -> tuple[str, object, object] | None:
    """Return the first difference between two reports, with both values, or None."""
    if one.tokens != other.tokens:
        return "tokens", one.tokens, other.tokens
    if one.over_all_tokens != other.over_all_tokens:
        return "over_all_tokens", sorted(one.over_all_tokens), sorted(other.over_all_tokens)
    scores, others = ({str(group): score for group, score in each.scores.items()} for each in (one, other))
    for kind, mine, theirs, slack in (
        # Sums of positive and negative numbers can be near 0, where a relative tolerance is too strict.
        ("metrics", one.metrics, other.metrics, CLOSE / 100 * max(1, one.tokens)),
        ("scalars", one.scalars, other.scalars, CLOSE),
        ("scores of group", scores, others, CLOSE),
    ):
        for name in sorted(mine.keys() | theirs.keys()):
            left, right = mine.get(name), theirs.get(name)
            if left is None or right is None:
                return f"{kind} {name!r}", left, right
            both_nan = math.isnan(left) and math.isnan(right)
            if not both_nan and not math.isclose(left, right, rel_tol=CLOSE, abs_tol=slack):
                return f"{kind} {name!r}", left, right
    return None


# Balance: the cost of a group, and shares of nearly equal cost.


@dataclass(frozen=True, slots=True)
class Cost:
    """Floating-point operations of the forward pass in training; the backward pass has twice as many."""

    token: float
    """Operations of one token in the matrices of all layers."""
    attended: float
    """Operations per earlier token that a token attends to, in all layers."""
    predicted: float
    """Operations of one predicted token in the output head."""

    @classmethod
    def of_config(cls, config: Mapping[str, Json]) -> "Cost":
        """Return the cost of the model that a config.json describes.

        Raises:
            ConfigError: the config lacks a size of the model.
        """

        def number(*names: str, default: float | None = None) -> float:
            found = next((value for name in names if isinstance(value := config.get(name), int | float)), default)
            if found is None:
                raise ConfigError(
                    f"balance_by_flops: the model's config.json has no {names[0]}: remove balance_by_flops"
                )
            return found

        width, layers = number("hidden_size", "n_embd", "d_model"), number("num_hidden_layers", "n_layer", "n_layers")
        heads = number("num_attention_heads", "n_head", "n_heads")
        queries = heads * number("head_dim", default=width / heads)
        keys = queries / heads * number("num_key_value_heads", default=heads)
        inner = number("moe_intermediate_size", "intermediate_size", "n_inner", default=4 * width)
        experts = number("num_experts_per_tok", default=1)
        # No config says whether the inner layer is gated: with SiLU it is, and with GELU in the Gemma family.
        gated = config.get("hidden_act") in ("silu", "swish") or str(config.get("model_type")).startswith("gemma")
        matrices = width * (2 * queries + 2 * keys) + (3 if gated else 2) * width * inner * experts
        return cls(2 * layers * matrices, 4 * layers * queries, 2 * width * number("vocab_size"))

    def of(self, prompt: int, responses: Sequence[int]) -> float:
        """Return the operations of a prompt of `prompt` tokens, computed once, and of responses of these lengths."""
        total = sum(responses)
        attended = prompt**2 / 2 + sum(length * (prompt + length / 2) for length in responses)
        return self.token * (prompt + total) + self.attended * attended + self.predicted * total


TOKENS = Cost(1.0, 0.0, 0.0)
"""Counts tokens: each prompt once, and all responses."""


# Steps and their batches.

_SamplesByPrompt: TypeAlias = dict[tuple[int, ...], list[TrainSample]]


def steps_of(groups: Sequence[TrainGroup], num_steps: int) -> Iterator[Sequence[TrainGroup]]:
    """Deal groups to optimizer steps round-robin; step sizes differ by one group at most. Leaves out empty steps."""
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
    """Split one step's groups into one batch per share; groups stay whole and in order.

    The longest groups come first, each to the share with the fewest tokens so far, or the lowest `cost`. Groups of
    equal rewards, which most trainers skip, are balanced separately. Denominators (`step_tokens`, `step_samples`) count
    the masks of the whole step, with samples of one execution (same `Sample.rollout_id`) as one.
    A sample with `remove_sample` keeps its reward for the normalisation and has a mask of zeros. Samples without a
    reward and groups without response tokens are left out.

    Args:
        groups: the step's groups.
        count: number of shares.
        rollout_id: index of the rollout.
        cost: what to balance; default: tokens.
        reads: fields that the trainer reads.
        step: index of the step in the rollout.

    Raises:
        ContractError: a sample has inputs that the trainer does not read.
    """
    _check_inputs(groups, reads)
    samples_by_prompt = [_by_prompt(group) for group in groups]
    shares: list[list[int]] = [[] for _ in range(count)]
    for differs in (True, False):
        numbers, sizes = list[int](), list[float]()
        for number, by_prompt in enumerate(samples_by_prompt):
            scored = [each for those in by_prompt.values() for each in those]
            has_tokens = any(each.sample.response_length for each in scored)
            if has_tokens and (len({each.reward for each in scored}) > 1) is differs:
                numbers.append(number)
                sizes.append(_size(by_prompt, cost or TOKENS))
        for share, places in zip(shares, _longest_first(sizes, count), strict=True):
            share += [numbers[place] for place in places]
    execution_numbers = _execution_numbers(groups)
    trained = [0] * len(execution_numbers)
    for group in groups:
        for each in group.samples:
            if each.reward is not None:
                trained[execution_numbers[id(each)]] += sum(each.loss_mask)
    totals = (sum(trained), sum(count > 0 for count in trained))
    rollout_and_step = rollout_id, step
    return [
        _train_batch(groups, samples_by_prompt, sorted(share), execution_numbers, totals, rollout_and_step, reads)
        for share in shares
    ]


def _check_inputs(groups: Sequence[TrainGroup], reads: frozenset[SampleField]) -> None:
    unread = [field for field in SampleField if field in INPUT_FIELDS - reads]
    for group in groups:
        for sample in (each.sample for each in group.samples if each.reward is not None):
            for field in unread:
                if getattr(sample, field.value) is not None:
                    raise ContractError(
                        f"sample {sample.index} of group {sample.group_index} has {field.value}, which the trainer "
                        "does not read: its log-probs would cover the text alone. Choose a trainer whose spec reads "
                        f"SampleField.{field.name}, or a generator that does not set it"
                    )


def _longest_first(sizes: Sequence[float], ranks: int) -> list[list[int]]:
    shares: list[list[int]] = [[] for _ in range(ranks)]
    load = [0.0] * ranks
    for place in sorted(range(len(sizes)), key=lambda each: -sizes[each]):
        least = load.index(min(load))
        shares[least].append(place)
        load[least] += sizes[place]
    return shares


def _size(by_prompt: _SamplesByPrompt, cost: Cost) -> float:
    return sum(
        cost.of(len(prompt), [each.sample.response_length for each in those]) for prompt, those in by_prompt.items()
    )


def _execution_numbers(groups: Sequence[TrainGroup]) -> dict[int, int]:
    """Number the executions of all groups from 0. Return each sample's number, by the `id()` of its `TrainSample`."""
    numbers: dict[tuple[int, int | None, int], int] = {}
    found: dict[int, int] = {}
    for group_number, group in enumerate(groups):
        for index, each in enumerate(group.samples):
            shared = each.sample.rollout_id
            key = (group_number, shared, -1 if shared is not None else index)
            found[id(each)] = numbers.setdefault(key, len(numbers))
    return found


def _by_prompt(group: TrainGroup) -> _SamplesByPrompt:
    """The group's samples that have a reward, by prompt."""
    found: _SamplesByPrompt = {}
    for each in group.samples:
        if each.reward is not None:
            found.setdefault(tuple(each.sample.tokens[: each.sample.prompt_length]), []).append(each)
    return found


def _train_batch(
    groups: Sequence[TrainGroup],
    samples_by_prompt: Sequence[_SamplesByPrompt],
    share: Sequence[int],
    execution_numbers: Mapping[int, int],
    totals: tuple[int, int],
    rollout_and_step: tuple[int, int],
    reads: frozenset[SampleField],
) -> TrainBatch:
    prompts: list[tuple[int, ...]] = []
    prompt_index, group_index, rollout_index, lengths = array("i"), array("i"), array("i"), array("i")
    rewards, importance = array("d"), array("d")
    tokens, mask, log_probs = array("i"), array("b"), array("f")
    # Every rank needs every column, even for a share without groups.
    first = next((each for group in groups for each in group.samples), None)
    columns_S = {name: array("d") for name in (first.columns_S if first else ())}
    columns_T = {name: array("f") for name in (first.columns_T if first else ())}
    fields_S: dict[SampleField, list[FieldValue]] = {field: [] for field in SampleField if field in reads}
    for number in share:
        for prompt, those in samples_by_prompt[number].items():
            for each in those:
                sample = each.sample
                prompt_index.append(len(prompts))
                group_index.append(number)
                rollout_index.append(execution_numbers[id(each)])
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
        rollout_id=rollout_and_step[0],
        step=rollout_and_step[1],
        columns_S=columns_S,
        columns_T=columns_T,
        fields_S={field: tuple(carried) for field, carried in fields_S.items()},
    )
