"""Settings of the reward `served_judge`, for the catalog.

Example:

    [reward.served_judge]
    verdict = "Verdict: (yes|no)"
"""

import re

from pydantic import Field, field_validator

from slime_core.roles import Number, Positive, Settings, Temperature

PROMPT = """Is the response right? Say what speaks for it and against it, and end with "Verdict: yes" or "Verdict: no".

Task: {prompt}

Right answer: {label}

Response: {response}"""


class JudgeSettings(Settings):
    """`[reward.served_judge]`."""

    model: str = Field("judge", description="Which of the run's served_models is asked.")
    prompt: str = Field(
        PROMPT,
        description="What it is asked; {prompt}, {response} and {label} are put in. For a judge of your own task.",
    )
    apply_chat_template: bool = Field(True, description="Ask it as a message of a user's, in its own chat template.")
    verdict: str = Field(
        r"(?i)verdict:\W*(\w[\w.]*)", description="Pattern of its verdict, with one group; the last match counts."
    )
    scores: dict[str, Number] = Field(
        {"yes": 1.0, "no": 0.0}, description="What each verdict is worth; one that is a number is worth that."
    )
    temperature: Temperature = Field(0.0, description="How it draws; 0 is greedy.")
    max_new_tokens: Positive = Field(512, description="Tokens that it may take.")

    @field_validator("verdict")
    @classmethod
    def _pattern(cls, pattern: str) -> str:
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise ValueError(f"it is not a pattern: {error}") from None
        if groups != 1:
            raise ValueError(f"it has {groups} groups; expected one, around the verdict")
        return pattern
