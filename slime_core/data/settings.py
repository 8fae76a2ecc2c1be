"""Settings of the core's data sources, apart from their code: the catalog imports neither readers nor tokenizers."""

from dataclasses import replace
from typing import Literal

from pydantic import Field

from slime_core.roles import RowFormat, Settings, Weight

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
