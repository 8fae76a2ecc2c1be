"""The reward `ifbench`: 1 if a response follows every instruction of its row.

Example:

    metadata = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
"""

from collections.abc import Sequence

from slime_core import Sample, Score, Unscored, Verdict
from slime_core.roles import RewardContext
from slime_core.sample import Json
from slime_reward_math.extract import thought_ends
from slime_reward_math.rewards.instructions import VERIFIERS, Arguments, text_of
from slime_reward_math.rewards.instructions.arguments import MissingArgument
from slime_reward_math.rewards.settings import IfbenchSettings
from slime_reward_math.rewards.verdicts import boxed


class Following:
    """Verifies the instructions of a sample's row."""

    def __init__(self, settings: IfbenchSettings, within_box: bool = False) -> None:
        self._settings, self._within_box = settings, within_box

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """Return 1 if all are followed, else 0; the share that is followed is a component."""
        names = _names(sample.metadata.get("instruction_id_list"))
        if not names:
            return Score(0.0) if self._settings.strict_slime else Unscored("no instructions in the row")
        unknown = [name for name in names if name not in VERIFIERS]
        if unknown:
            return Unscored("an instruction without a verifier", detail=", ".join(unknown))
        response = boxed(sample) if self._within_box else sample.response
        if not self._settings.strict_slime:
            start = thought_ends(response)
            response = "" if start is None else response[start:]
        text = text_of(response)
        given = _arguments(sample.metadata.get("kwargs"), len(names))
        try:
            followed = [self._follows(text, name, each) for name, each in zip(names, given, strict=True)]
        except MissingArgument as error:
            return Unscored("an instruction without its arguments", detail=str(error))
        return Score(float(all(followed)), {"followed": sum(followed) / len(followed)})

    def check_label(self, sample: Sample) -> str | None:
        """See whether the row's instructions can be verified; see `slime_core.roles.ChecksLabels`."""
        names = _names(sample.metadata.get("instruction_id_list"))
        if not names:
            return "no instructions in the row"
        if unknown := [name for name in names if name not in VERIFIERS]:
            return f"no verifier of {', '.join(unknown)}"
        try:
            for name, each in zip(names, _arguments(sample.metadata.get("kwargs"), len(names)), strict=True):
                self._follows("a", name, each)
        except MissingArgument as error:
            return f"an instruction without its arguments: {error}"
        return None

    def _follows(self, text: str, name: str, given: Arguments) -> bool:
        if not text.strip():
            return False
        verify = VERIFIERS[name]
        return any(verify(each, given) for each in (_variants(text) if self._settings.loose else (text,)))


def _variants(text: str) -> tuple[str, ...]:
    """The text, and the text without its first or last line, each with and without asterisks."""
    lines = text.split("\n")
    parts = [text, "\n".join(lines[1:]).strip(), "\n".join(lines[:-1]).strip(), "\n".join(lines[1:-1]).strip()]
    return tuple(dict.fromkeys(each for part in parts for each in (part, part.replace("*", "")) if each))


def _names(given: Json) -> list[str]:
    return [each.strip() for each in given if isinstance(each, str) and each.strip()] if isinstance(given, list) else []


def _arguments(given: Json, count: int) -> Sequence[Arguments]:
    """One set of arguments for each instruction; one set alone is for all."""
    rows = given if isinstance(given, list) else [given] * count
    known = [each if isinstance(each, dict) else {} for each in rows][:count]
    known += [known[-1] if known else {}] * (count - len(known))
    return [Arguments({name: value for name, value in each.items() if value is not None}) for each in known]
