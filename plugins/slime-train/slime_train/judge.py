"""The reward `served_judge`: a served model reads a response and returns a verdict. No torch: it runs in the driver."""

import re

from slime_core.data import with_bos
from slime_core.errors import ConfigError
from slime_core.roles import GenerateRequest, RewardContext, SamplingParams, Setup
from slime_core.sample import Sample
from slime_core.score import Score, Unscored, Verdict
from slime_train.settings import JudgeSettings


class Judge:
    """Asks a served model about each response."""

    def __init__(self, settings: JudgeSettings, setup: Setup) -> None:
        self._settings, self._models = settings, setup.models
        self._verdict = re.compile(settings.verdict)
        self._scores = {text.casefold(): value for text, value in settings.scores.items()}

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """Return the score of the last verdict in the model's answer; Unscored if there is none.

        Raises:
            ConfigError: the run serves no such model.
        """
        settings = self._settings
        if settings.model not in self._models:
            raise ConfigError(
                f"reward 'served_judge' asks the model {settings.model!r}, which is not served here: a run serves it, "
                f"with [served_models.{settings.model}] hf_checkpoint = PATH"
            )
        model = self._models[settings.model]
        prompt = self._prompt(sample)
        if settings.apply_chat_template:
            prompt = model.tokenizer.apply_chat_template([{"role": "user", "content": prompt}])
        else:
            prompt = with_bos(prompt, model.tokenizer)
        sampling = SamplingParams(settings.max_new_tokens, settings.temperature)
        answer = await model.generate(GenerateRequest(model.tokenizer.encode(prompt), sampling, ctx.seed))
        text = model.tokenizer.decode(answer.tokens)
        found = self._verdict.findall(text)
        value = self._score(found[-1]) if found else None
        if value is None:
            return Unscored("the judge came to no verdict", detail=text[-500:])
        return Score(value)

    def check_label(self, sample: Sample) -> str | None:
        """Require a label if the judge's prompt shows it; see `slime_core.roles.ChecksLabels`."""
        is_asked = "{label}" in self._settings.prompt
        return "no gold answer, which the judge's prompt shows" if is_asked and sample.label in (None, "") else None

    def _prompt(self, sample: Sample) -> str:
        prompt, label = sample.prompt, "" if sample.label is None else str(sample.label)
        if not isinstance(prompt, str):
            prompt = "\n\n".join(f"{each.get('role')}: {each.get('content')}" for each in prompt)
        parts = {"prompt": prompt, "response": sample.response, "label": label}
        # Replace all in one pass: a "{label}" inside a response must stay as it is.
        return re.sub(r"\{(prompt|response|label)\}", lambda found: parts[found[1]], self._settings.prompt)

    def _score(self, verdict: str) -> float | None:
        plain = verdict.casefold().rstrip(".")
        if plain in self._scores:
            return self._scores[plain]
        try:
            return float(plain)
        except ValueError:
            return None
