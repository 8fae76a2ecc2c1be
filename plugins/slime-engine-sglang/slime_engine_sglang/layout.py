"""Layout: how a server shares out its GPUs, from `gpus` and SGLang's own arguments for it.

Example:

    layout_of(SglangSettings(gpus=8, server={"dp_size": 2})).tp_size        # 4: two replicas, each split over four
"""

from dataclasses import dataclass
from typing import cast

from slime_core.errors import ConfigError
from slime_engine_sglang.settings import SglangSettings

REPLICAS = ("dp_size", "data_parallel_size")
STAGES = ("pp_size", "pipeline_parallel_size")
ATTENTIONS = ("attn_dp_size", "attention_data_parallel_size")


@dataclass(frozen=True, slots=True)
class Layout:
    """How one server shares out its GPUs."""

    gpus: int
    """All of them; 0: it runs on the CPU."""
    replicas: int
    """How often the whole model is there (`dp_size`)."""
    stages: int
    """Into how many its layers are cut (`pp_size`)."""
    attentions: int
    """How often its attention is there (`attn_dp_size`), where the rest is split further."""

    @property
    def tp_size(self) -> int:
        """Over how many GPUs each layer is split."""
        return max(1, self.gpus // (self.replicas * self.stages))

    @property
    def of_heads(self) -> int:
        """Over how many GPUs the heads of its attention are split."""
        return max(1, self.tp_size // self.attentions)


def layout_of(settings: SglangSettings) -> Layout:
    """The layout that the settings ask for.

    Raises:
        ConfigError: the GPUs cannot be shared out so.
    """
    replicas, stages, attentions = (_said(settings, names) for names in (REPLICAS, STAGES, ATTENTIONS))
    if settings.server.get("enable_dp_attention"):  # as it was said before attn_dp_size
        replicas, attentions = 1, replicas
    if settings.gpus % (parts := replicas * stages * attentions):
        raise ConfigError(
            f"[engine.sglang] gpus = {settings.gpus} is all GPUs of a server, and cannot be shared out by dp_size, "
            f"pp_size and attn_dp_size, which make {parts} parts: give a multiple of {parts}"
        )
    return Layout(settings.gpus, replicas, stages, attentions)


def _said(settings: SglangSettings, names: tuple[str, ...]) -> int:
    return next((cast(int, settings.server[name]) for name in names if settings.server.get(name)), 1)
