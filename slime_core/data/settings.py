"""Settings of the core's data sources and of the reward `served_judge`.

They are separate from the code that uses them, so that the catalog imports neither readers nor tokenizers.

Example:

    [data_source.mixture.sources]               # with [data_source] use = "mixture"
    math = { path = "math.jsonl", weight = 3.0, label_key = "answer" }
    code = { path = ["code-a.parquet", "code-b.parquet"] }
"""

import re
from dataclasses import replace
from typing import Literal

from pydantic import Field, field_validator

from slime_core.roles import Number, Positive, RowFormat, Settings, Temperature, Weight

MediaKeys = dict[Literal["image", "video", "audio"], str]


class MixtureMember(Settings):
    """A member of a mixture; the run's setting applies where it has none."""

    path: str | list[str] = Field(description="Prompt file, or several; file@[a:b] takes a slice.")
    weight: Weight = Field(1.0, description="How often it is drawn from, in proportion to the others.")
    input_key: str | None = Field(None, description="Column of the prompt.")
    label_key: str | None = Field(None, description="Column of the gold answer.")
    metadata_key: str | None = Field(None, description="Column of a mapping kept with the sample.")
    tool_key: str | None = Field(None, description="Column of tool definitions for the chat template.")
    multimodal_keys: MediaKeys | None = Field(None, description="Column of each kind of media.")
    apply_chat_template: bool | None = Field(None, description="Render prompts through the model's chat template.")
    final_assistant_message: Literal["refuse", "continue", "cut"] | None = Field(
        None, description="Prompts that end with an assistant message: refuse, continue or cut it."
    )

    def row_format(self, run: RowFormat) -> RowFormat:
        """Return the format of its rows, based on the run's."""
        own = self.model_dump(exclude={"path", "weight"}, exclude_none=True)
        return replace(run, **own)


class MixtureSettings(Settings):
    """`[data_source.mixture]`."""

    sources: dict[str, MixtureMember] = Field(min_length=1, description="Members by name.")


# Settings of the reward `served_judge`, separate for the catalog.

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
