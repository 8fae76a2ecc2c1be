r"""Turns grades into what slime-core asks of a reward: a score, or a reason why there is none.

Example:

    verdict_of(grade("4", r"\boxed{4}"))      # Score(1.0, {"answered": 1.0})
"""

import json
from contextlib import suppress

from slime_core import Score, Unscored, Verdict
from slime_core.sample import Json, Sample
from slime_reward_math.extract import extract
from slime_reward_math.verdict import Grade, Outcome

NO_GOLD = Unscored("no gold answer")
"""What a row without a gold answer gets: a zero would say that the model was wrong."""


def verdict_of(found: Grade, right: float = 1.0, wrong: float = 0.0) -> Verdict:
    """A grade as a verdict: undecided and timed out answers are unscored; the run's policy decides."""
    if found.outcome is Outcome.TIMEOUT:
        return Unscored("timeout", retryable=True, detail=f"gold {found.gold[:200]!r}")
    if found.outcome is Outcome.UNDECIDED:
        if found.reason == "no gold answer":
            return NO_GOLD
        return Unscored("undecided", detail=f"{found.reason}: gold {found.gold[:200]!r}, answer {found.answer!r:.200}")
    components = {"correct": float(found.correct), "answered": float(found.answer is not None)}
    return Score(right if found.correct else wrong, components)


def boxed(sample: Sample) -> str:
    """What the `boxed_` variant of a reward reads: the last box alone; nothing without one."""
    return extract(sample.response).text or ""


def golds(label: Json) -> list[Json]:
    """The gold answers of a label: each item of a list, or the label itself; nothing for None and empty texts.

    A text that is a JSON list of texts, as `["72"]`, is that list: parquet files of verl keep labels so.
    """
    if isinstance(label, str) and label.startswith('["') and label.endswith('"]'):
        with suppress(ValueError):
            label = json.loads(label)
    several = label if isinstance(label, list) else [label]
    return [each for each in several if each is not None and not (isinstance(each, str) and not each.strip())]
