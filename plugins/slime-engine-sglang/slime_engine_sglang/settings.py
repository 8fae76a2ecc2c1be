"""Settings of the engine `sglang`: which servers to use, how to start them, and how to split a model over GPUs.

Example:

    layout_of(SglangSettings(gpus=8, server={"dp_size": 2})).tp_size        # 4: two replicas, each on four GPUs
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
"""Arguments of a router that follow from the run or from other settings."""

ROUTER_MODULES = {"smg": "smg.launch_router", "sglang-router": "sglang_router.launch_router"}
"""Module of each router package that starts the router."""
DROPPED_EXTRAS = {"smg": frozenset[Extra](), "sglang-router": frozenset({Extra.ROUTED_EXPERTS, Extra.TOP_P_TOKENS})}
"""Request fields that a router drops; both drop `logit_bias`."""


class RouterSettings(Settings):
    """`[engine.sglang.router]`."""

    use: Literal["smg", "sglang-router"] = Field(
        "smg", description="Router package. sglang-router removes routed_experts and top_p_tokens from requests."
    )
    python: Path | None = Field(
        None, description="Python in which the router is installed. Default: the Python of the run."
    )
    policy: str = Field("cache_aware", min_length=1, description="The router's load-balancing policy.")
    args: dict[str, JsonValue] = Field(
        {}, description="Other arguments of the router, such as cache_threshold = 0.5; true sets a flag."
    )

    @model_validator(mode="before")
    @classmethod
    def _collect_arguments(cls, values: object) -> object:
        """Move router arguments next to `policy` into `args`; `--router-cache-threshold` puts them there."""
        if not isinstance(values, dict):
            return values
        extra = {name: value for name, value in values.items() if name not in cls.model_fields}
        args = values.get("args", {})
        if not extra or not isinstance(args, dict):
            return values
        if conflicts := sorted(name for name in extra if name in args and args[name] != extra[name]):
            raise ValueError(
                f"{conflicts[0]} is set to {extra[conflicts[0]]!r}, and in args to {args[conflicts[0]]!r}. Set it once"
            )
        known = {name: value for name, value in values.items() if name in cls.model_fields}
        return {**known, "args": {**args, **extra}}

    @field_validator("args")
    @classmethod
    def _check_args(cls, values: dict[str, JsonValue]) -> dict[str, JsonValue]:
        named = {name.removeprefix("--").replace("-", "_"): value for name, value in values.items()}
        for name, value in named.items():
            if name in ROUTER_OWN_ARGUMENTS:
                raise ValueError(f"{name} cannot be set, because it follows from the run and the other settings")
            if isinstance(value, dict):
                raise ValueError(f"{name} = {value!r}: expected a string, a number, a boolean or a list of them")
        return named

    @field_validator("python")
    @classmethod
    def _check_python(cls, python: Path | None) -> Path | None:
        if python is not None and shutil.which(python) is None:
            raise ValueError(f"{python} does not exist. Set it to a Python that has smg or sglang-router")
        return python


class SglangSettings(Settings):
    """`[engine.sglang]`."""

    python: Path | None = Field(
        None, description="Python in which SGLang is installed. Default: the Python of the run."
    )
    gpus: int = Field(
        0,
        ge=0,
        le=4096,
        description="GPUs of each server. The model is split over them with tensor parallelism, or as dp_size, pp_size "
        "and attn_dp_size in `server` set it. 0: run on the CPU.",
    )
    deterministic: bool = Field(
        False,
        description="Sample with the run's seeds (enable_deterministic_inference), so that a repeated run generates "
        "the same samples. Slower; on CPUs also without SGLang's prefix cache.",
    )
    new_weights: Literal["retract", "in_place", "wait"] = Field(
        "retract",
        description="How running requests get new weights. `retract`: they continue and recompute their KV cache. "
        "`in_place`: they continue with their old KV cache. `wait`: the weights wait until all requests have ended.",
    )
    server: dict[str, JsonValue] = Field(
        {}, description="Other arguments of the installed SGLang by name, such as mem_fraction_static = 0.7."
    )
    router: RouterSettings | None = Field(
        None, description="Router that distributes requests over the servers. Default: no router."
    )
    request_timeout_s: float = Field(3600.0, gt=0, le=1e7, description="Seconds that a request may take.")
    start_timeout_s: float = Field(600.0, gt=0, le=1e7, description="Seconds that a server may take to become ready.")
    urls: list[str] = Field([], description="Addresses of running servers, one per engine, that no other program uses.")

    @field_validator("server")
    @classmethod
    def _check_names(cls, values: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for name in values:
            if name.startswith("-") or "-" in name:
                raise ValueError(f"write {name.removeprefix('--').replace('-', '_')!r} instead of {name!r}")
        return values

    @field_validator("urls")
    @classmethod
    def _check_urls(cls, urls: list[str]) -> list[str]:
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.netloc:
                raise ValueError(f"{url!r} is not the address of a server; expected http://HOST:PORT")
        return [url.rstrip("/") for url in urls]

    @model_validator(mode="after")
    def _started_or_running(self) -> Self:
        fields = type(self).model_fields
        for key in ("python", "gpus", "deterministic", "server"):
            if self.urls and getattr(self, key) != fields[key].default:
                raise ValueError(
                    f"{key} has no effect on the servers in urls, which are already running. Remove {key} or urls"
                )
        return self

    @property
    def needs(self) -> Needs:
        return Needs(gpus=float(self.gpus))


REPLICAS = ("dp_size", "data_parallel_size")
STAGES = ("pp_size", "pipeline_parallel_size")
ATTENTIONS = ("attn_dp_size", "attention_data_parallel_size")


@dataclass(frozen=True, slots=True)
class Layout:
    """How one server splits a model over its GPUs."""

    gpus: int  # Number of GPUs; 0: it runs on the CPU
    replicas: int  # Number of copies of the whole model (`dp_size`)
    stages: int  # Number of pipeline stages (`pp_size`)
    attentions: int  # Number of copies of the attention layers (`attn_dp_size`)

    @property
    def tp_size(self) -> int:
        return max(1, self.gpus // (self.replicas * self.stages))

    @property
    def head_shards(self) -> int:
        return max(1, self.tp_size // self.attentions)


def layout_of(settings: SglangSettings) -> Layout:
    """The layout in the settings. Raises ConfigError: the number of GPUs does not fit it."""
    replicas, stages, attentions = (_first_set(settings, names) for names in (REPLICAS, STAGES, ATTENTIONS))
    if settings.server.get("enable_dp_attention"):  # the form before attn_dp_size
        replicas, attentions = 1, replicas
    if settings.gpus % (parts := replicas * stages * attentions):
        raise ConfigError(
            f"[engine.sglang] gpus = {settings.gpus}, the GPUs of one server, cannot be divided by dp_size, pp_size "
            f"and attn_dp_size, which make {parts} parts. Set gpus to a multiple of {parts}"
        )
    return Layout(settings.gpus, replicas, stages, attentions)


def _first_set(settings: SglangSettings, names: tuple[str, ...]) -> int:
    return next((cast(int, settings.server[name]) for name in names if settings.server.get(name)), 1)
