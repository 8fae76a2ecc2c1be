"""Settings of the local engine and trainer, without torch, for the catalog."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from slime_core.roles import Needs, Settings

Processes = Annotated[int, Field(ge=1, le=64)]
Device = Literal["cpu", "cuda"]
Gpus = Annotated[float, Field(gt=0.0, le=1.0)]
ALL_LINEAR = "all-linear"


class LocalEngineSettings(Settings):
    """`[engine.local]`."""

    workers: Processes = Field(2, description="Number of processes that generate, one thread each.")
    max_total_tokens: int | None = Field(
        None,
        ge=1,
        le=10**9,
        description="Approximate size of a worker's key-value cache in tokens, prompts included. Requests that do not "
        "fit wait. Default: as many tokens as fit in 2 GiB.",
    )
    device: Device = Field("cpu", description="Device of the workers. With cuda, each has gpus_per_worker GPUs.")
    gpus_per_worker: Gpus = Field(1.0, description="GPUs of each worker, with cuda. With 0.25, four workers share one.")

    @property
    def needs(self) -> Needs:
        """What one worker needs of its machine."""
        return _needs(self.device, self.gpus_per_worker)

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        _check_gpus(self, "gpus_per_worker")
        return self


class LocalTrainerSettings(Settings):
    """`[trainer.local]`."""

    ranks: Processes = Field(2, description="Number of processes that train, one thread each.")
    device: Device = Field("cpu", description="Device of the ranks. With cuda, each has gpus_per_rank GPUs.")
    gpus_per_rank: Gpus = Field(1.0, description="GPUs of each rank, with cuda. With 0.25, four ranks share one.")
    max_tokens_per_micro_batch: int = Field(
        16384,
        ge=1,
        le=10**9,
        description="Maximum prompt and response tokens of one forward pass. Samples of one prompt stay together.",
    )
    gradient_checkpointing: bool = Field(
        False, description="Store only each layer's input and recompute the rest: less memory, more time."
    )
    lora_rank: int | None = Field(
        None, ge=1, le=65_536, description="Train LoRA adapters of this rank instead of the weights."
    )
    lora_alpha: float = Field(32.0, gt=0.0, le=1e6, description="Adapters are scaled by lora_alpha / lora_rank.")
    lora_target_modules: list[str] = Field(
        [ALL_LINEAR],
        min_length=1,
        description="Layers with an adapter, such as q_proj. all-linear selects all but the output head.",
    )
    only_train_params_name_list: list[str] = Field(
        [], description="Train only weights whose name matches one of these regular expressions, as in slime."
    )
    freeze_params_name_list: list[str] = Field(
        [], description="Do not train weights whose name matches one of these regular expressions, as in slime."
    )

    @property
    def needs(self) -> Needs:
        """What one rank needs of its machine."""
        return _needs(self.device, self.gpus_per_rank)

    @field_validator("lora_target_modules", "only_train_params_name_list", "freeze_params_name_list", mode="before")
    @classmethod
    def _one_name(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    @field_validator("only_train_params_name_list", "freeze_params_name_list")
    @classmethod
    def _compiles(cls, patterns: list[str]) -> list[str]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        return patterns

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        _check_gpus(self, "gpus_per_rank")
        return self

    @model_validator(mode="after")
    def _one_way_to_choose(self) -> Self:
        fields = type(self).model_fields
        if self.lora_rank is None:
            for key in ("lora_alpha", "lora_target_modules"):
                if getattr(self, key) != fields[key].default:
                    raise ValueError(f"{key} = {getattr(self, key)} has no effect here: set lora_rank")
        elif self.only_train_params_name_list or self.freeze_params_name_list:
            raise ValueError(
                "only_train_params_name_list and freeze_params_name_list have no effect with lora_rank: choose layers "
                "with lora_target_modules"
            )
        if self.only_train_params_name_list and self.freeze_params_name_list:
            raise ValueError(
                "only_train_params_name_list and freeze_params_name_list exclude each other: give one of them"
            )
        return self


def _needs(device: Device, gpus: float) -> Needs:
    return Needs(gpus=gpus if device == "cuda" else 0.0)


def _check_gpus(settings: LocalEngineSettings | LocalTrainerSettings, key: str) -> None:
    gpus: float = getattr(settings, key)
    if settings.device == "cpu" and gpus != type(settings).model_fields[key].default:
        raise ValueError(f'{key} = {gpus:g} has no effect here: set device = "cuda"')
