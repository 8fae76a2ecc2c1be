"""Settings of the engine `sglang`: which servers, how they are started, and how one shares out its GPUs.

Example:

    layout_of(SglangSettings(gpus=8, server={"dp_size": 2})).tp_size        # 4: two replicas, each split over four
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, cast
from urllib.parse import urlsplit

from pydantic import Field, JsonValue, field_validator, model_validator

from slime_core.errors import ConfigError
from slime_core.roles import Extra, Needs, Settings

ROUTER_OWN_ARGUMENTS = frozenset({"host", "port", "worker_urls", "policy", "prometheus_port"})
"""Arguments of a router that follow from the run, or from another setting."""

ROUTER_MODULES = {"smg": "smg.launch_router", "sglang-router": "sglang_router.launch_router"}
"""Module of each router package that starts the router."""
LEAVES_OUT = {"smg": frozenset[Extra](), "sglang-router": frozenset({Extra.ROUTED_EXPERTS, Extra.TOP_P_TOKENS})}
"""Request fields that a router drops; both drop `logit_bias`."""


class RouterSettings(Settings):
    """`[engine.sglang.router]`."""

    use: Literal["smg", "sglang-router"] = Field(
        "smg", description="Which router; sglang-router leaves routed_experts and top_p_tokens out of requests."
    )
    python: Path | None = Field(
        None, description="Python that has the router, with which it is started; by default the one of the run."
    )
    policy: str = Field("cache_aware", min_length=1, description="How it chooses a server.")
    args: dict[str, JsonValue] = Field(
        {}, description="The router's other arguments by name, as cache_threshold = 0.5; true is a flag alone."
    )

    @model_validator(mode="before")
    @classmethod
    def _arguments_beside(cls, given: object) -> object:
        """Accept router arguments next to `policy`, where `--router-cache-threshold` puts them."""
        if not isinstance(given, dict):
            return given
        beside = {name: value for name, value in given.items() if name not in cls.model_fields}
        args = given.get("args", {})
        if not beside or not isinstance(args, dict):
            return given
        if twice := sorted(name for name in beside if name in args and args[name] != beside[name]):
            raise ValueError(
                f"{twice[0]} is given as {beside[twice[0]]!r}, and in args as {args[twice[0]]!r}: once, please"
            )
        own = {name: value for name, value in given.items() if name in cls.model_fields}
        return {**own, "args": {**args, **beside}}

    @field_validator("args")
    @classmethod
    def _only_free_ones(cls, given: dict[str, JsonValue]) -> dict[str, JsonValue]:
        named = {name.removeprefix("--").replace("-", "_"): value for name, value in given.items()}
        for name, value in named.items():
            if name in ROUTER_OWN_ARGUMENTS:
                raise ValueError(f"{name} follows from the run and the other settings, and cannot be given")
            if isinstance(value, dict):
                raise ValueError(f"{name} = {value!r}: expected a text, a number, a truth value or a list of them")
        return named

    @field_validator("python")
    @classmethod
    def _is_there(cls, python: Path | None) -> Path | None:
        if python is not None and shutil.which(python) is None:
            raise ValueError(
                f"there is no {python} to start the router with: name a Python that has smg or sglang-router"
            )
        return python


class SglangSettings(Settings):
    """`[engine.sglang]`."""

    python: Path | None = Field(
        None, description="Python that has SGLang, with which servers are started; by default the one of the run."
    )
    gpus: int = Field(
        0,
        ge=0,
        le=4096,
        description="GPUs of one server, over which it splits the model (tensor parallel, or as dp_size, pp_size and "
        "attn_dp_size of `server` say); 0: it runs on the CPU.",
    )
    deterministic: bool = Field(
        False,
        description="Draw with the run's seeds (enable_deterministic_inference): the same run, the same samples. "
        "Slower; on CPUs also without SGLang's prefix cache.",
    )
    new_weights: Literal["retract", "in_place", "wait"] = Field(
        "retract",
        description="What becomes of answers under way when new weights come: they go on with them, their keys and "
        "values computed anew (retract), or as they are (in_place); or weights wait until all have ended (wait).",
    )
    server: dict[str, JsonValue] = Field(
        {}, description="Arguments of the SGLang that is installed, by their names: mem_fraction_static = 0.7."
    )
    router: RouterSettings | None = Field(
        None, description="The router that requests go through, where the run has one before its servers."
    )
    request_timeout_s: float = Field(3600.0, gt=0, le=1e7, description="Seconds in which a request must be answered.")
    start_timeout_s: float = Field(600.0, gt=0, le=1e7, description="Seconds in which a server must be ready.")
    urls: list[str] = Field(
        [], description="Servers that run already, one for each engine of the run, and which nobody else uses."
    )

    @field_validator("server")
    @classmethod
    def _as_keys(cls, given: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for name in given:
            if name.startswith("-") or "-" in name:
                raise ValueError(f"write {name.removeprefix('--').replace('-', '_')!r} instead of {name!r}")
        return given

    @field_validator("urls")
    @classmethod
    def _addresses(cls, urls: list[str]) -> list[str]:
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.netloc:
                raise ValueError(f"{url!r} is not an address of a server; expected http://HOST:PORT")
        return [url.rstrip("/") for url in urls]

    @model_validator(mode="after")
    def _started_or_running(self) -> Self:
        fields = type(self).model_fields
        for key in ("python", "gpus", "deterministic", "server"):
            if self.urls and getattr(self, key) != fields[key].default:
                raise ValueError(f"{key} is for servers that the run starts; those of urls run already")
        return self

    @property
    def needs(self) -> Needs:
        return Needs(gpus=float(self.gpus))


REPLICAS = ("dp_size", "data_parallel_size")
STAGES = ("pp_size", "pipeline_parallel_size")
ATTENTIONS = ("attn_dp_size", "attention_data_parallel_size")


@dataclass(frozen=True, slots=True)
class Layout:
    """How one server shares out its GPUs."""

    gpus: int  # All of them; 0: it runs on the CPU
    replicas: int  # How often the whole model is there (`dp_size`)
    stages: int  # Into how many its layers are cut (`pp_size`)
    attentions: int  # How often its attention is there (`attn_dp_size`), where the rest is split further

    @property
    def tp_size(self) -> int:
        return max(1, self.gpus // (self.replicas * self.stages))

    @property
    def of_heads(self) -> int:
        return max(1, self.tp_size // self.attentions)


def layout_of(settings: SglangSettings) -> Layout:
    """The layout that the settings ask for. Raises ConfigError: the GPUs cannot be shared out so."""
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
