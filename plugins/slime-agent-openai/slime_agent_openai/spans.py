"""Spans: the conversations of one execution as a tree of stretches of tokens, read from its stored samples.

Samples of one execution share beginnings: what they share is one span. A span that the model made has a log-prob and
a weight version for each token, wherever it was trained on; whether it was stays with the token.

Example:

    for execution in executions_of(shard.groups().kept):
        for span in execution.walk(): print("  " * span.depth, span.kind, len(span.tokens))
"""

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from slime_core import Sample
from slime_core.rollout import executions
from slime_core.sample import Group


class SpanKind(enum.Enum):
    """Whose words they are."""

    PROMPT = "prompt"
    """What came before the model first spoke."""
    MODEL = "model"
    """The model's, trained on."""
    CONTEXT = "context"
    """Others': users', tools', or the model's that another client wrote again."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a conversation."""

    id: int
    """Its id."""
    kind: SpanKind
    """Whose it is."""
    log_prob: float | None = None
    """The sampler's; None where it is not the model's."""
    version: str = ""
    """Version of the weights that made it; empty where it is not the model's, or was not noted."""


@dataclass(eq=False, slots=True)
class Span:
    """Tokens in a row that are of one kind and of the same samples."""

    kind: SpanKind
    """Whose words they are."""
    depth: int
    """Spans above it at which conversations part."""
    tokens: list[Token]
    """At least one."""
    samples: list[Sample]
    """Those that hold it."""
    children: list["Span"] = field(default_factory=list)
    """What comes after it."""

    @property
    def ends(self) -> list[Sample]:
        """Samples that end here."""
        further = {id(sample) for child in self.children for sample in child.samples}
        return [sample for sample in self.samples if id(sample) not in further]

    @property
    def version(self) -> str:
        """Versions of the weights that made it."""
        return ", ".join(dict.fromkeys(token.version for token in self.tokens if token.version))


@dataclass(frozen=True, slots=True)
class Execution:
    """One drawn sample that was run once."""

    group: str
    """Identity of its group."""
    samples: Sequence[Sample]
    """Those that it fanned out into."""
    roots: Sequence[Span]
    """Its conversations, by how they begin."""
    drop_reason: str | None = None
    """Why its group was dropped."""

    def walk(self) -> Iterator[Span]:
        """Every span, a conversation after the other."""
        stack = list(self.roots)[::-1]
        while stack:
            yield (span := stack.pop())
            stack += span.children[::-1]


def executions_of(groups: Iterable[Group], drop_reason: str | None = None) -> Iterator[Execution]:
    """The executions of some groups, in order."""
    for group in groups:
        for samples in executions(group.samples):
            yield Execution(str(group.id), samples, spans_of(samples), drop_reason)


def tokens_of(sample: Sample) -> list[Token]:
    """A sample's tokens, with what is known of each."""
    prompt = [Token(token, SpanKind.PROMPT) for token in sample.tokens[: sample.prompt_length]]
    mask = sample.loss_mask if sample.loss_mask is not None else [1] * sample.response_length
    log_probs = sample.rollout_log_probs
    versions = _versions(sample)
    response = sample.tokens[sample.prompt_length :]
    return prompt + [
        Token(token, SpanKind.MODEL, log_probs[at] if log_probs is not None else None, versions[at])
        if mask[at]
        else Token(token, SpanKind.CONTEXT)
        for at, token in enumerate(response)
    ]


def spans_of(samples: Sequence[Sample]) -> list[Span]:
    """The conversations of some samples: where two go on alike they are one."""
    roots: list[Span] = []
    left = [_Left([(sample, tokens_of(sample)) for sample in samples], 0, roots)]
    while left:  # not by recursion: a conversation may have more turns than Python has frames
        part = left.pop()
        begun: dict[int, _Held] = {}
        for sample, tokens in part.held:
            if tokens:
                begun.setdefault(tokens[0].id, []).append((sample, tokens))
        for held in begun.values():
            tokens = _same(held)
            span = Span(tokens[0].kind, part.depth + (len(begun) > 1), tokens, [sample for sample, _ in held])
            part.into.append(span)
            left.append(_Left([(sample, own[len(tokens) :]) for sample, own in held], span.depth, span.children))
    return roots


def _same(held: "_Held") -> list[Token]:
    """The tokens of one kind that all begin with, as the sample knows them that is trained on them."""
    made: list[Token] = []
    for at in range(min(len(tokens) for _, tokens in held)):
        those = [tokens[at] for _, tokens in held]
        token = next((each for each in those if each.kind is SpanKind.MODEL), those[0])
        if any(each.id != token.id for each in those) or (made and token.kind is not made[0].kind):
            break
        made.append(token)
    return made


_Held: TypeAlias = list[tuple[Sample, Sequence[Token]]]


@dataclass(frozen=True, slots=True)
class _Left:
    """What is still to be cut into spans."""

    held: _Held
    depth: int
    into: list[Span]


def _versions(sample: Sample) -> list[str]:
    """The version of each response token, where it was noted."""
    made = [sample.weight_versions[0] if len(set(sample.weight_versions)) == 1 else ""] * sample.response_length
    for begin, end, version in sample.stretches:
        made[begin:end] = [str(version)] * (end - begin)
    return made
