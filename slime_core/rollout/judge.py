"""Judge: the reward `served_judge`: a model that the run serves reads a response and says what it is worth.

Example:

    [served_models.judge]
    hf_checkpoint = "models/judge"

    [reward]
    use = "served_judge"

    [reward.served_judge]
    verdict = "Verdict: (yes|no)"       # the last match in what it says; its group is looked up in `scores`
"""

import re

from slime_core.data.judge_settings import JudgeSettings
from slime_core.data.tokenizer import with_bos
from slime_core.errors import ConfigError
from slime_core.roles import GenerateRequest, RewardContext, SamplingParams, ServedModel, Setup
from slime_core.sample import Message, Sample
from slime_core.score import Score, Unscored, Verdict


class Judge:
    """Implements `slime_core.roles.Reward`."""

    def __init__(self, settings: JudgeSettings, setup: Setup) -> None:
        """Look for the model at the first call: it may not be started yet."""
        self._settings, self._models = settings, setup.models
        self._verdict = re.compile(settings.verdict)
        self._scores = {text.casefold(): value for text, value in settings.scores.items()}

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """What its verdict is worth, and Unscored where it comes to none.

        Raises:
            ConfigError: the run serves no such model.
            SlimeError: it could not be asked.
        """
        settings, model = self._settings, self._model()
        asked = self._asked(sample)
        if settings.apply_chat_template:
            asked = model.tokenizer.apply_chat_template([{"role": "user", "content": asked}])
        else:
            asked = with_bos(asked, model.tokenizer)
        sampling = SamplingParams(settings.max_new_tokens, settings.temperature)
        answer = await model.generate(GenerateRequest(model.tokenizer.encode(asked), sampling, ctx.seed))
        text = model.tokenizer.decode(answer.tokens)
        found = self._verdict.findall(text)
        value = self._worth(found[-1]) if found else None
        if value is None:
            return Unscored("the judge came to no verdict", detail=text[-500:])
        return Score(value)

    def check_label(self, sample: Sample) -> str | None:
        """See whether there is a label where the judge's prompt shows it; see `slime_core.roles.ChecksLabels`."""
        is_asked = "{label}" in self._settings.prompt
        return "no gold answer, which the judge's prompt shows" if is_asked and sample.label in (None, "") else None

    def _model(self) -> ServedModel:
        name = self._settings.model
        if name not in self._models:
            raise ConfigError(
                f"reward 'served_judge' asks the model {name!r}, which is not served here: a run serves it, with "
                f"[served_models.{name}] hf_checkpoint = PATH"
            )
        return self._models[name]

    def _asked(self, sample: Sample) -> str:
        parts = {
            "prompt": _text_of(sample.prompt),
            "response": sample.response,
            "label": "" if sample.label is None else str(sample.label),
        }
        # In one pass: a response that says "{label}" is not told it.
        return re.sub(r"\{(prompt|response|label)\}", lambda found: parts[found[1]], self._settings.prompt)

    def _worth(self, verdict: str) -> float | None:
        plain = verdict.casefold().rstrip(".")
        if plain in self._scores:
            return self._scores[plain]
        try:
            return float(plain)
        except ValueError:
            return None


def _text_of(prompt: str | list[Message]) -> str:
    """A prompt as text; of messages what each of them says."""
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(f"{each.get('role')}: {each.get('content')}" for each in prompt)
