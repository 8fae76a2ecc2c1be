"""Samples for tests, without a model and without a tokenizer.

sample = make_sample(response="4", label="4")       # finished, five tokens of prompt, sound by Sample.problems()
group = make_group(draw=3, rewards=(0.0, 1.0))
"""

from collections.abc import Sequence

from slime_core.sample import Group, GroupId, Json, Sample, Status

PROMPT_TOKENS = (11, 12, 13, 14, 15)
"""Ids of every made prompt."""


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
    """A drawn sample, as a generator is given it."""
    return Sample(group_index=group_index, index=index, rollout_id=index, prompt=prompt, label=label, source="kit")


def make_group(draw: int = 0, *, rewards: Sequence[float] = (0.0, 1.0), weight_version: int = 0) -> Group:
    """A frozen group of one sample per reward; `draw` is its identity."""
    samples = [
        make_sample(reward=reward, weight_version=weight_version, group_index=draw, index=index)
        for index, reward in enumerate(rewards)
    ]
    group = Group(GroupId("kit", 0, draw, draw), samples)
    group.freeze()
    return group
