"""Samples and groups for tests, without a model and without a tokenizer.

sample = make_sample(response="4", label="4")       # finished, five prompt tokens, valid for Sample.problems()
group = make_group(draw=3, rewards=(0.0, 1.0))
"""

import copy
import json
import time
from collections.abc import Callable, Mapping, Sequence

from slime_core.sample import Group, GroupId, Json, Sample, Status
from slime_testing.blocking import STALL_S, TRIES
from slime_testing.contract import require

PROMPT_TOKENS = (11, 12, 13, 14, 15)
"""Prompt token ids of every sample."""


def make_sample(
    response: str = "4",
    label: Json = "4",
    *,
    prompt: str = "What is 2 + 2?",
    reward: float | None = None,
    weight_version: int = 0,
    group_index: int = 0,
    index: int = 0,
    metadata: dict[str, Json] | None = None,
) -> Sample:
    """A finished sample with one token per character of the response."""
    sample = Sample(
        group_index=group_index,
        index=index,
        prompt=prompt,
        tokens=list(PROMPT_TOKENS),
        label=label,
        metadata=dict(metadata or {}),
        source="kit",
    )
    sample.append_response_tokens(
        tokens=[ord(character) % 256 for character in response],
        log_probs=[-0.5] * len(response),
        text=response,
        weight_version=str(weight_version),
    )
    sample.status = Status.COMPLETED
    sample.reward = reward
    return sample


def make_pending(*, prompt: str = "What is 2 + 2?", label: Json = "4", group_index: int = 0, index: int = 0) -> Sample:
    """A pending sample, as generators receive it."""
    return Sample(group_index=group_index, index=index, rollout_id=index, prompt=prompt, label=label, source="kit")


def make_group(draw: int = 0, *, rewards: Sequence[float] = (0.0, 1.0), weight_version: int = 0) -> Group:
    """A frozen group with one finished sample per reward; `draw` determines its id."""
    samples = [
        make_sample(reward=reward, weight_version=weight_version, group_index=draw, index=index)
        for index, reward in enumerate(rewards)
    ]
    group = Group(GroupId("kit", 0, draw, draw), samples)
    group.freeze()
    return group


HOSTILE: Mapping[str, str] = {
    "nothing": "",
    "spaces": " " * 10_000,
    "NUL and a lone surrogate": "\0\ud800",
    "right-to-left and combining marks": "\u202e" + "e" + "\u0301" * 5_000,
    "no number": "nan",
    "infinity": "-inf",
    "an overflow": "1e999",
    "200 000 digits": "9" * 200_000,
    "a tower of powers": "9**9**9**9",
    "5 000 nested boxes": "\\boxed{" * 5_000 + "1" + "}" * 5_000,
    "100 000 open braces": "{" * 100_000,
    "100 000 open brackets": "[" * 100_000,
    "a mebibyte of one word": "answer " * 150_000,
    "text that pretends to be code": "__import__('os')._exit(3)",
    "an end of thought that never began": "</think>" * 1_000,
}
"""Responses that break careless rewards, by name."""


DISTINCT_REASONS = 8
"""Most distinct reasons that a filter may give for the kit's groups: each reason becomes a metric."""
_REWARDS = ((0.0, 1.0), (1.0, 1.0), (0.0, 0.0), (0.25, 0.5, 0.75, 1.0), (-1.0, 2.0), (1.0,), (0.5, 0.5, 0.5001))


def varied_groups() -> list[Group]:
    """Finished groups with equal and different rewards, of several sizes, lengths, statuses and sources."""
    groups = [make_group(draw, rewards=rewards, weight_version=draw) for draw, rewards in enumerate(_REWARDS * 3)]
    for group in groups[7:]:
        for position, sample in enumerate(group.samples):
            longer = make_sample("word " * (3 * position + 1), group_index=sample.group_index or 0, index=position)
            longer.reward = sample.reward
            longer.status = (Status.COMPLETED, Status.TRUNCATED)[position % 2]
            longer.source = "other"
            longer.metadata = {"row": position}
            group.samples[position] = longer
        group.freeze()
    for group in groups:
        for position, sample in enumerate(group.samples):
            sample.index = position // 2  # a call may fan out into several samples with one index
    return groups


def odd_groups() -> list[Group]:
    """Unusual groups: unscored, failed and aborted samples, rewards that are dicts, empty responses."""
    unscored, mixed, failed, dicts, empty = (make_group(100 + number) for number in range(5))
    for sample in unscored.samples:
        sample.reward = None
    mixed.samples[0].reward = None
    failed.samples[0].status, failed.samples[0].reward = Status.FAILED, None
    failed.samples[1].status = Status.ABORTED
    for sample in dicts.samples:
        sample.reward = {"score": float(sample.index or 0), "style": 0.5}
    for sample in empty.samples:
        sample.tokens, sample.response, sample.response_length = list(sample.tokens)[:5], "", 0
        sample.loss_mask, sample.rollout_log_probs = [], []
    empty.freeze()
    return [unscored, mixed, failed, dicts, empty]


def require_unchanged(groups: Sequence[Group], make_call: Callable[[Sequence[Group]], object]) -> None:
    """Fail the running check if `make_call` changes the given groups or their list."""
    clone = [copy.deepcopy(group) for group in groups]
    order, before = list(map(id, clone)), json.dumps([group.to_dict() for group in clone])
    make_call(clone)
    require(order == list(map(id, clone)), "it changed the list of groups; copy the list before changing it")
    require(json.dumps([group.to_dict() for group in clone]) == before, "it changed a group or a sample; copy it first")


def require_quick(make_call: Callable[[], object], limit_s: float = STALL_S) -> None:
    """Fail the running check if every one of several calls takes `limit_s` or longer."""
    shortest = float("inf")
    for _ in range(TRIES):
        started = time.perf_counter()
        make_call()
        shortest = min(shortest, time.perf_counter() - started)
        if shortest < limit_s:
            return
    raise AssertionError(f"a call took {shortest:.2f} s; the limit is {limit_s:g} s, because the run waits for it")


def require_countable(reasons: Sequence[str]) -> None:
    """Fail the running check unless the reasons are few and short."""
    distinct = sorted(set(reasons))
    many = f"{len(distinct)} distinct reasons, such as {distinct[:3]}; at most {DISTINCT_REASONS} are allowed"
    require(len(distinct) <= DISTINCT_REASONS, many)
    longest = max(map(len, distinct), default=0)
    require(longest <= 80, f"a reason has {longest} characters; at most 80 are allowed")
