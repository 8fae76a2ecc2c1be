"""The reward `gpqa`: 1 if a response chooses the right letter.

Example:

    await Letters(GpqaSettings())(sample, ctx)      # metadata: choices, valid_letters, correct_letter, all optional
"""

import re
import string
from collections.abc import Sequence

from slime_core import Sample, Score, Unscored, Verdict
from slime_core.roles import RewardContext
from slime_core.sample import Json
from slime_reward_math import plain
from slime_reward_math.choice import chosen_letter, listed_choices
from slime_reward_math.plugin import GpqaSettings
from slime_reward_math.rewards.answers import NO_GOLD, boxed

DEFAULT_LETTERS = tuple(string.ascii_uppercase[:10])
"""The letters where the row names none: A to J, as in slime."""
NO_CHOICE = "the label is not a choice"
"""Why a row has no right letter."""
_STRICT = (
    re.compile(r"(?:answer|option|choice)\s{0,20}(?:is|:)?\s{0,20}([A-Z])", re.IGNORECASE),
    re.compile(r"([A-Z])\s{0,20}(?:is\s{0,20}(?:the)?\s{0,20}correct)", re.IGNORECASE),
    re.compile(r"final\s{0,20}(?:answer|option)\s{0,20}(?:is|:)?\s{0,20}([A-Z])", re.IGNORECASE),
)


class Letters:
    """Compares the chosen letter with the right one."""

    def __init__(self, settings: GpqaSettings, within_box: bool = False) -> None:
        self._strict, self._within_box = settings.strict_slime, within_box

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """Return 1 for the right letter, 0 for another or none."""
        choices = _texts(sample.metadata.get("choices")) or listed_choices(_asked(sample))
        letters = _letters(sample.metadata.get("valid_letters"), choices)
        right = right_letter(sample.label, sample.metadata.get("correct_letter"), letters, choices)
        if sample.label is None and right is None:
            return NO_GOLD
        response = boxed(sample) if self._within_box else sample.response
        if self._strict:
            return Score(float(_slime(response, sample, right, letters, choices)))
        if right is None or right not in letters:
            return Unscored(NO_CHOICE, detail=f"label {sample.label!r}, letters {', '.join(letters)}")
        found = chosen_letter(response, letters, choices)
        return Score(float(found == right), {"correct": float(found == right), "answered": float(found is not None)})

    def check_label(self, sample: Sample) -> str | None:
        """See whether the label is one of the choices; see `slime_core.roles.ChecksLabels`."""
        choices = _texts(sample.metadata.get("choices")) or listed_choices(_asked(sample))
        letters = _letters(sample.metadata.get("valid_letters"), choices)
        right = right_letter(sample.label, sample.metadata.get("correct_letter"), letters, choices)
        if sample.label is None and right is None:
            return NO_GOLD.reason
        return None if right in letters else f"{NO_CHOICE}: {', '.join(letters)}"


def right_letter(label: Json, named: Json, letters: Sequence[str], choices: Sequence[str]) -> str | None:
    """The gold letter: named by the row, or from a label that is a letter, an index or the text of one choice."""
    if isinstance(named, str) and named.strip():
        return named.strip().upper()
    if isinstance(label, bool):
        return None
    if isinstance(label, int | float):
        return letters[int(label)] if 0 <= label < len(letters) and label == int(label) else None
    if not isinstance(label, str):
        return None
    text = label.strip()
    for form in (str.strip, plain.squeeze, _plain):
        # Compare before removing signs, to distinguish `x < 1` from `x > 1`.
        same = [letter for letter, choice in zip(letters, choices, strict=False) if form(choice) == form(text)]
        if len(same) == 1:
            return same[0]
    letter = plain.chosen(text) or (text.upper() if len(text) == 1 else None) or _first_letter(text)
    return letter if letter in letters else None


def _first_letter(text: str) -> str | None:
    """`C` of a label like `C Cecile`."""
    return text[0] if len(text) > 2 and text[0].isupper() and text[1] == " " else None


def _asked(sample: Sample) -> str:
    if isinstance(sample.prompt, str):
        return sample.prompt
    content = sample.prompt[-1].get("content") if sample.prompt else ""
    return content if isinstance(content, str) else ""


def _texts(choices: Json) -> list[str]:
    values = list(choices.values()) if isinstance(choices, dict) else choices
    return [str(each) for each in values] if isinstance(values, list) else []


def _letters(valid: Json, choices: Sequence[str]) -> tuple[str, ...]:
    if isinstance(valid, list) and valid:
        return tuple(str(each).upper() for each in valid)
    return tuple(string.ascii_uppercase[: len(choices)]) if choices else DEFAULT_LETTERS


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).strip()


def _slime(response: str, sample: Sample, right: str | None, letters: Sequence[str], choices: Sequence[str]) -> bool:
    text = response.rsplit("</think>", 1)[-1]
    found = _slime_letter(text, letters)
    if found and right:
        return found == right
    named = [sample.metadata.get(key) for key in ("correct_answer", "answer_text")]
    if right in letters and letters.index(right) < len(choices):
        named.append(choices[letters.index(right)])
    if isinstance(sample.label, str):
        named.append(sample.label)
    targets = [_plain(str(each)) for each in named if each]
    return any(target and target in _plain(text) for target in targets)


def _slime_letter(text: str, letters: Sequence[str]) -> str | None:
    for pattern in _STRICT:
        match = pattern.search(text)
        if match and match[1].upper() in letters:
            return match[1].upper()
    alone = [letter for letter in re.findall(r"\b([A-Z])\b", text) if letter in letters]
    return alone[-1] if alone else None
