"""The conversations of one execution, from its stored samples: as a tree of spans, and as an HTML page without scripts.

Samples of one execution share beginnings; a shared beginning is one span. A span that the model made has a log-prob and
a weight version for each token. The page escapes all text, and its policy forbids scripts.

Example:

    for execution in executions_of(shard.groups().kept):
        for span in execution.walk(): print("  " * span.depth, span.kind, len(span.tokens))
    Path("page.html").write_text(page("runs/first", executions, tokenizer), "utf-8")
"""

import enum
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TypeAlias

from slime_core import Sample
from slime_core.data import token_texts
from slime_core.roles import Tokenizer
from slime_core.rollout import executions, main_of
from slime_core.sample import Group


class SpanKind(enum.Enum):
    """Who wrote the tokens."""

    PROMPT = "prompt"  # What came before the model first spoke
    MODEL = "model"  # The model's, trained on
    CONTEXT = "context"  # Written by users or tools, or by the model but sent again by another client


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a conversation."""

    id: int  # Its id
    kind: SpanKind  # Who wrote it
    log_prob: float | None = None  # The sampler's; None unless the model wrote it
    version: str = ""  # Version of the weights that made it; empty if unknown or not by the model


@dataclass(eq=False, slots=True)
class Span:
    """Consecutive tokens of one kind that belong to the same samples."""

    kind: SpanKind  # Who wrote them
    depth: int  # Number of spans above it at which conversations part
    tokens: list[Token]  # At least one
    samples: list[Sample]  # Samples that contain it
    children: list["Span"] = field(default_factory=list)  # Spans that follow it

    @property
    def ends(self) -> list[Sample]:
        further = {id(sample) for child in self.children for sample in child.samples}
        return [sample for sample in self.samples if id(sample) not in further]

    @property
    def version(self) -> str:
        return ", ".join(dict.fromkeys(token.version for token in self.tokens if token.version))


@dataclass(frozen=True, slots=True)
class Execution:
    """One drawn sample, run once."""

    group: str  # Identity of its group
    samples: Sequence[Sample]  # Samples that it fanned out into
    roots: Sequence[Span]  # First span of each conversation
    drop_reason: str | None = None  # Why its group was dropped

    def walk(self) -> Iterator[Span]:
        stack = list(self.roots)[::-1]
        while stack:
            yield (span := stack.pop())
            stack += span.children[::-1]


def executions_of(groups: Iterable[Group], drop_reason: str | None = None) -> Iterator[Execution]:
    """The executions of the given groups, in order."""
    for group in groups:
        for samples in executions(group.samples):
            yield Execution(str(group.id), samples, spans_of(samples), drop_reason)


def tokens_of(sample: Sample) -> list[Token]:
    """A sample's tokens, with kind, log-prob and version."""
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
    """The conversations of the given samples as trees; where two conversations agree they share a span."""
    roots: list[Span] = []
    pending = [_Part([(sample, tokens_of(sample)) for sample in samples], 0, roots)]
    while pending:  # no recursion: a conversation may have more turns than Python has frames
        part = pending.pop()
        by_first_token: dict[int, _Tails] = {}
        for sample, tokens in part.tails:
            if tokens:
                by_first_token.setdefault(tokens[0].id, []).append((sample, tokens))
        for tails in by_first_token.values():
            tokens = _shared_tokens(tails)
            span = Span(tokens[0].kind, part.depth + (len(by_first_token) > 1), tokens, [sample for sample, _ in tails])
            part.siblings.append(span)
            pending.append(_Part([(sample, rest[len(tokens) :]) for sample, rest in tails], span.depth, span.children))
    return roots


def _shared_tokens(tails: "_Tails") -> list[Token]:
    """The first tokens of one kind that all share, taken from the sample that is trained on them."""
    shared: list[Token] = []
    for at in range(min(len(tokens) for _, tokens in tails)):
        candidates = [tokens[at] for _, tokens in tails]
        token = next((each for each in candidates if each.kind is SpanKind.MODEL), candidates[0])
        if any(each.id != token.id for each in candidates) or (shared and token.kind is not shared[0].kind):
            break
        shared.append(token)
    return shared


_Tails: TypeAlias = list[tuple[Sample, Sequence[Token]]]


@dataclass(frozen=True, slots=True)
class _Part:
    """Tokens not yet cut into spans."""

    tails: _Tails
    depth: int
    siblings: list[Span]


def _versions(sample: Sample) -> list[str]:
    versions = [sample.weight_versions[0] if len(set(sample.weight_versions)) == 1 else ""] * sample.response_length
    for begin, end, version in sample.version_spans:
        versions[begin:end] = [str(version)] * (end - begin)
    return versions


SHADES = 9  # Colour steps between a probability of 1 and one of 1 in 1,000
_MIN_LOG_PROB = math.log(1e-3)
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } summary { cursor: pointer; } .note { opacity: .7; }
details.execution { border: 1px solid var(--line); border-radius: .4rem; margin: .6rem 0; padding: .4rem .8rem; }
.branch { border-left: 3px solid var(--line); margin-left: .3rem; padding-left: .8rem; }
.span { margin: .4rem 0; } .who { font-size: .8rem; opacity: .7; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .1rem 0; padding: .4rem .6rem; background: var(--soft);
      border-radius: .3rem; font: 13px/1.5 ui-monospace, monospace; }
.context pre, .prompt pre { opacity: .75; }
.end { border: 1px dashed var(--line); border-radius: .3rem; padding: .2rem .6rem; margin: .4rem 0; font-size: .85rem; }
.good { color: #2a8a3e; } .bad { color: #c0392b; }
"""


def page(title: str, executions: Iterable[Execution], tokenizer: Tokenizer | None) -> str:
    """The HTML page; without a tokenizer it shows token ids."""
    shades = "".join(
        f".s{n} {{ background: rgba(230, 126, 34, {n / SHADES * 0.8:.2f}); }}\n" for n in range(SHADES + 1)
    )
    body = "".join(_execution(each, tokenizer) for each in executions)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{shades}</style></head>\n<body><h1>{escape(title)}</h1>\n"
        '<p class="note">The darker a token of the model, the less likely it was. Hover over a token for its id, '
        f"log-prob and weight version.</p>\n{body or '<p>No conversations.</p>'}</body></html>\n"
    )


def _execution(execution: Execution, tokenizer: Tokenizer | None) -> str:
    main = main_of(execution.samples)
    reward = _reward(main)
    dropped = f", dropped: {execution.drop_reason}" if execution.drop_reason else ""
    count = f"{len(execution.samples)} samples" if len(execution.samples) > 1 else "1 sample"
    head = f"{execution.group} #{main.index}: {reward}, {main.status.value}, {count}{dropped}"
    tone = "good" if _has_reward(main) else "bad"
    return (
        f'<details class="execution"><summary class="{tone}">{escape(head)}</summary>\n'
        f'<div class="who">label {escape(json.dumps(main.label, ensure_ascii=False))}</div>\n'
        f"{''.join(_spans(execution.roots, tokenizer))}</details>\n"
    )


def _spans(roots: Sequence[Span], tokenizer: Tokenizer | None) -> Iterator[str]:
    stack: list[Span | str] = [*_with_branches(roots)[::-1]]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
            continue
        yield _span(item, tokenizer)
        yield from (_end(sample) for sample in item.ends)
        stack += _with_branches(item.children)[::-1]


def _with_branches(spans: Sequence[Span]) -> list[Span | str]:
    if len(spans) < 2:
        return list(spans)
    return [part for span in spans for part in ('<div class="branch">', span, "</div>\n")]


def _span(span: Span, tokenizer: Tokenizer | None) -> str:
    author = {SpanKind.PROMPT: "prompt", SpanKind.MODEL: "model", SpanKind.CONTEXT: "not trained on"}[span.kind]
    version = f", weight version {span.version}" if span.version else ""
    head = f"{author}, {len(span.tokens)} tokens{version}"
    return (
        f'<div class="span {span.kind.value}"><div class="who">{escape(head)}</div>'
        f"<pre>{_text(span, tokenizer)}</pre></div>\n"
    )


def _text(span: Span, tokenizer: Tokenizer | None) -> str:
    if tokenizer is None:
        return escape(" ".join(str(token.id) for token in span.tokens))
    if span.kind is not SpanKind.MODEL:
        return escape(tokenizer.decode([token.id for token in span.tokens], skip_special_tokens=False))
    return "".join(_shaded(text, tokens) for text, tokens in _pieces(span.tokens, tokenizer))


def _pieces(tokens: Sequence[Token], tokenizer: Tokenizer) -> Iterator[tuple[str, Sequence[Token]]]:
    place = 0
    for text, count in token_texts([token.id for token in tokens], tokenizer):
        yield text, tokens[place : place + count]
        place += count


def _shaded(text: str, tokens: Sequence[Token]) -> str:
    known = [token.log_prob for token in tokens if token.log_prob is not None]
    shade = round(min(1.0, min(known, default=0.0) / _MIN_LOG_PROB) * SHADES) if known else 0
    title_text = "; ".join(
        f"id {token.id}" + (f", log-prob {token.log_prob:.4f}" if token.log_prob is not None else "")
        for token in tokens
    )
    version = tokens[0].version
    title = f"{title_text}, version {version}" if version else title_text
    return f'<span class="s{shade}" title="{escape(title)}">{escape(text)}</span>'


def _end(sample: Sample) -> str:
    facts = [_reward(sample), sample.status.value, f"{sample.effective_response_length} tokens trained on"]
    facts += [f"agent {sample.metadata['agent']}"] if "agent" in sample.metadata else []
    facts += [sample.failure_reason] if sample.failure_reason else []
    facts += ["removed from training"] if sample.remove_sample else []
    detail = sample.metadata.get("failure_detail")
    detail_html = f"<pre>{escape(str(detail))}</pre>" if detail else ""
    return f'<div class="end">sample ends: {escape(", ".join(facts))}{detail_html}</div>\n'


def _reward(sample: Sample) -> str:
    if sample.reward is None:
        return "no reward"
    if isinstance(sample.reward, float | int):
        return f"reward {sample.reward:.4g}"
    return ", ".join(f"{name} {value:.4g}" for name, value in sample.reward.items())


def _has_reward(sample: Sample) -> bool:
    rewards = sample.reward.values() if isinstance(sample.reward, dict) else [sample.reward]
    return any(value is not None and value > 0 for value in rewards)
