"""Training samples of a session, one per conversation, and how they share a reward.

A reply is trained on once, in the first conversation that contains it; elsewhere it is context. Rewards by turn belong
to the main conversation: each is placed at the end of its reply.

Each sample of an execution gets the execution's reward or its agent's own (`Result.agents`), unless you choose:

    reward_shaper = {use = "agent_split"}          # each sample gets an equal part of the reward
    sample_filter = {use = "agent_last_branch"}    # only the main conversation is trained on
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TypeAlias

from slime_agent_openai.forest import Node
from slime_agent_openai.session import Session
from slime_agent_openai.task import Result
from slime_agent_openai.turns import TURN_REWARDS
from slime_core import Status
from slime_core.roles import FilterContext, FinishReason, Removal, ShapeContext, Tokenizer
from slime_core.rollout import MAIN, executions
from slime_core.sample import Group, PrefixCacheInfo, Sample, SpecInfo

Chain: TypeAlias = Sequence[tuple[Node, bool]]
"""A conversation from beginning to end; each message with whether it is trained on here."""


def main_of(chains: Sequence[Chain]) -> Chain:
    """The session's main conversation: it ends with the latest reply to the main agent, or else to any agent.

    Of replies requested at the same time, which end in random order, the longest counts; `chains` have a fixed order.
    """
    chains = [chain for chain in chains if not chain[-1][0].agent] or chains
    asked = max(chain[-1][0].asked for chain in chains)
    return max((chain for chain in reversed(chains) if chain[-1][0].made > asked), key=len)


ASKED_NOTHING = "agent_asked_nothing"  # Failure reason of a sample whose agent sent no request to the model
NO_REQUEST_HELP = (
    "the agent ended without a reply of the model. Give its client base_url = task.openai_base_url or "
    "task.anthropic_base_url, and api_key = task.api_key; a command finds both in its environment"
)
ROUNDS = "round_number"  # Metric with the number of the model's replies in a conversation
WRONG_TURNS = "agent_turn_rewards"
"""Failure reason of a sample whose agent returned a wrong number of rewards for its main conversation."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an agent ended."""

    result: Result = field(default_factory=Result)  # the agent's result
    failure: str | None = None  # why it failed, short and countable
    detail: str = ""  # details of the failure


def samples_of(drawn: Sample, session: Session, outcome: Outcome, tokenizer: Tokenizer) -> list[Sample]:
    """Finished samples of one execution; `main_of` chooses the main sample."""
    chains = list(session.forest.chains())
    if not chains:
        return [_empty(drawn, session, outcome)]
    main = main_of(chains)
    ends, outcome = _check_turn_rewards(outcome, main)
    samples = [_sample(drawn, chain, tokenizer) for chain in chains]
    for sample, chain in zip(samples, chains, strict=True):
        end = chain[-1][0]
        is_cut = end.output is not None and end.output.finish is FinishReason.LENGTH
        _close(sample, session, outcome, is_cut=is_cut, agent=end.agent)
        if chain is main and outcome.result.turn_rewards is not None and sample.status is not Status.ABORTED:
            turns = zip(pairwise([0, *ends]), outcome.result.turn_rewards, strict=True)
            sample.metadata[TURN_REWARDS] = [[end, value] for (before, end), value in turns if end > before]
        if end.agent:
            sample.metadata["agent"] = end.agent
        if len(samples) > 1:
            sample.metadata[MAIN] = chain is main
    return samples


def _check_turn_rewards(outcome: Outcome, main: Sequence[tuple[Node, bool]]) -> tuple[list[int], Outcome]:
    """Ends of the main conversation's replies, and the outcome: a failure if the number of turn rewards is wrong.

    A reply without tokens has no place for a reward.
    """
    begin = _first_reply(main)
    lengths = accumulate(len(node.ids) for node, _ in main[begin:])
    ends = [end for end, (node, _) in zip(lengths, main[begin:], strict=True) if node.output is not None]
    rewards = outcome.result.turn_rewards
    if rewards is None or len(rewards) == len(ends):
        return ends, outcome
    detail = (
        f"the agent returned {len(rewards)} turn_rewards, {list(rewards)!r:.200}; its main conversation has "
        f"{len(ends)} replies of the model. A reply to an edited or new history belongs to another conversation"
    )
    return ends, Outcome(failure=WRONG_TURNS, detail=detail)


def _first_reply(chain: Sequence[tuple[Node, bool]]) -> int:
    return next(place for place, (node, _) in enumerate(chain) if node.output is not None)


def _sample(drawn: Sample, chain: Sequence[tuple[Node, bool]], tokenizer: Tokenizer) -> Sample:
    begin = _first_reply(chain)
    sample = _copy(drawn)
    sample.tokens = [token for node, _ in chain[:begin] for token in node.ids]
    for node, is_trained in chain[begin:]:
        text = tokenizer.decode(node.ids)
        if is_trained and node.output is not None:
            sample.append_response_tokens(output=node.output, text=text)
        elif node.ids:
            sample.append_response_tokens(tokens=node.ids, trainable=False, text=text)
    sample.metadata[ROUNDS] = sum(node.output is not None for node, _ in chain)
    return sample


def _empty(drawn: Sample, session: Session, outcome: Outcome) -> Sample:
    sample = _copy(drawn)
    sample.tokens, sample.response_length = [], 0
    if outcome.failure is None and not session.interrupted.is_set() and not session.exceeded_limit:
        outcome = replace(outcome, failure=ASKED_NOTHING, detail=NO_REQUEST_HELP)
    _close(sample, session, outcome, is_cut=False)
    return sample


def _close(sample: Sample, session: Session, outcome: Outcome, *, is_cut: bool, agent: str = "") -> None:
    sample.metadata |= outcome.result.metadata
    result = outcome.result
    reward = result.agents.get(agent, result.reward) if agent else result.reward
    if session.interrupted.is_set():
        sample.status = Status.ABORTED
    elif session.exceeded_limit:  # an agent's error after the limit is not a failure: without a reward it earns 0
        failed = outcome.failure is not None and reward is None
        sample.status, sample.reward = Status.TRUNCATED, 0.0 if failed else reward
    elif outcome.failure is not None:
        sample.status, sample.failure_reason = Status.FAILED, outcome.failure
        if outcome.detail:
            sample.metadata["failure_detail"] = outcome.detail
    else:
        sample.status, sample.reward = Status.TRUNCATED if is_cut else Status.COMPLETED, reward


def _copy(drawn: Sample) -> Sample:
    return replace(drawn, metadata=dict(drawn.metadata), spec_info=SpecInfo(), prefix_cache_info=PrefixCacheInfo())


class Split:
    """Implements `slime_core.roles.RewardShaper`: divides a reward among the samples of its execution.

    Agents that fan out into many samples then have the same weight as others: with reward r and n samples, each
    sample gets r / n.
    """

    def __call__(self, groups: Sequence[Group], ctx: ShapeContext) -> Sequence[Sequence[float | None]]:
        """Each reward divided by the number of samples that share it; samples without a reward do not count."""
        return [_split(group.samples, rewards) for group, rewards in zip(groups, ctx.rewards, strict=True)]


class LastBranch:
    """Implements `slime_core.roles.SampleFilter`: trains only on the main sample of an execution."""

    def __call__(self, groups: Sequence[Group], ctx: FilterContext) -> Sequence[Removal]:
        """Remove each sample with a false `metadata["main"]` from executions with several samples."""
        return [
            Removal(group.id, position, "other_branch")
            for group in groups
            for position, sample in enumerate(group.samples)
            if sample.metadata.get(MAIN) is False
        ]


def _split(samples: Sequence[Sample], rewards: Sequence[float | None]) -> list[float | None]:
    scored = [sample for sample, reward in zip(samples, rewards, strict=True) if reward is not None]
    sharing = {id(sample): len(siblings) for siblings in executions(scored) for sample in siblings}
    return [
        None if reward is None else reward / sharing[id(sample)]
        for sample, reward in zip(samples, rewards, strict=True)
    ]
