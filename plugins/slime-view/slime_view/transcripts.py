"""Before and after: the model's answers to the same prompts in the first and the last evaluation.

pairs = before_and_after(run_dir / "samples")
text = transcripts_markdown(pairs)
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from slime_core.sample import Message
from slime_view.samples import Kind, SampleRow, Shard, list_shards

__all__ = ["Pair", "before_and_after", "prompt_text"]


@dataclass(frozen=True, slots=True)
class Pair:
    """One prompt, answered twice."""

    before: SampleRow
    """In the first evaluation."""
    after: SampleRow
    """In the last one."""


def before_and_after(samples: Path, count: int = 8) -> list[Pair]:
    """Up to `count` prompts of a samples folder that the first and the last evaluation share, one answer each.

    Prompts whose reward changed get half of the places, and more if few are unchanged. The rest goes to the first other
    prompts, so that unchanged answers are shown too. The list is empty with fewer than two evaluations.
    """
    files = list_shards(samples, Kind.EVAL)
    if len(files) < 2:
        return []
    first, last = (_one_per_prompt(Shard(path).rows()) for path in (files[0], files[-1]))
    pairs = [Pair(row, last[key]) for key, row in first.items() if key in last]
    changed = [pair for pair in pairs if pair.before.reward != pair.after.reward]
    same = [pair for pair in pairs if pair.before.reward == pair.after.reward]
    places = max(count // 2, count - len(same))
    chosen = changed[:places]
    return [*chosen, *same[: count - len(chosen)]]


def transcripts_markdown(pairs: Sequence[Pair]) -> str:
    """The pairs as a Markdown document."""
    parts = ["# Before and after", "", "The same evaluation prompts, answered by the first and by the last weights."]
    for number, pair in enumerate(pairs, start=1):
        parts += ["", f"## {number}. {pair.before.source}", "", "Prompt:", "", fenced(prompt_text(pair.before.prompt))]
        if pair.before.label is not None:
            parts += ["", f"Gold answer: {inline(str(pair.before.label))}"]
        for row in (pair.before, pair.after):
            parts += ["", f"After {row.rollout_id} rollouts, {_verdict(row)}:", "", fenced(row.response)]
    return "\n".join(parts) + "\n"


def prompt_text(prompt: str | list[Message]) -> str:
    """A prompt as text; chat messages become one paragraph each."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{message.get('role')}: {message.get('content')}" for message in prompt)


def fenced(text: str) -> str:
    """A code block that no text can break out of."""
    ticks = "`" * max(3, _longest_run(text) + 1)
    return f"{ticks}text\n{text}\n{ticks}"


def inline(text: str) -> str:
    """A code span that no text can break out of."""
    flat = " ".join(text.split())
    ticks = "`" * (_longest_run(flat) + 1)
    space = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{ticks}{space}{flat}{space}{ticks}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _verdict(row: SampleRow) -> str:
    reward = "not scored" if row.reward is None else f"reward {row.reward}"
    return f"{reward}, {row.response_length} tokens, {row.status}"


def _one_per_prompt(rows: Iterable[SampleRow]) -> dict[tuple[str, str], SampleRow]:
    found: dict[tuple[str, str], SampleRow] = {}
    for row in rows:
        found.setdefault((row.source, prompt_text(row.prompt)), row)
    return found
