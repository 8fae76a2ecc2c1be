"""Command line of a server, and checks of its Python, SGLang, router and model.

Example:

    check_use(settings, EngineUse(model, config, engines=2))        # or a ConfigError with a suggested fix
    server_command(settings, setup)     # ["/opt/sglang/bin/python", "-m", "sglang.launch_server", "--model-path", ...]

`host.Host` adds host and port, which are known only on the server's machine.
"""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from pydantic import JsonValue, ValidationError

from slime_core.errors import ConfigError, did_you_mean
from slime_core.roles import EngineSetup, EngineUse, Extra
from slime_engine_sglang.arguments import NEWEST, check_version, installed_version, router_arguments, server_arguments
from slime_engine_sglang.checkpoint import is_mixture
from slime_engine_sglang.command_line import arguments_model, command_line
from slime_engine_sglang.generate_api import SCORED_AT
from slime_engine_sglang.settings import (
    ROUTER_MODULES,
    ROUTER_OWN_ARGUMENTS,
    Layout,
    RouterSettings,
    SglangSettings,
    layout_of,
)

HOW_TO_INSTALL = (
    "For CPUs, run `make servers` in a checkout of slime-core, which builds .venv-sglang. For GPUs, run "
    f"`pip install -e . -e './plugins/slime-engine-sglang[server]'` or `pip install sglang=={NEWEST}` in a separate "
    "environment. Then set [engine.sglang] python, or --sglang-python, to the Python that has it"
)


def check_use(settings: SglangSettings, use: EngineUse) -> None:
    """Check that servers can start, or that `urls` lists enough of them. Raises ConfigError otherwise."""
    if Extra.PROMPT_LOG_PROBS in use.want and use.sampling.temperature not in SCORED_AT:
        raise ConfigError(
            f"rollout_temperature = {use.sampling.temperature:g}: SGLang returns log-probs of a text only at "
            "temperature 1 and 0, and a teacher scores at the temperature of its samples. Set rollout_temperature = 1, "
            "or use opd_teacher_load"
        )
    if settings.router is not None:
        check_router(settings.router)
    if settings.urls:
        check_count(settings, use.engines)
        return
    check_python(settings.python)
    _check_split(layout_of(settings), use)
    _check_drafts(settings)
    if settings.deterministic and use.sampling.min_p:
        raise ConfigError(
            f"rollout_min_p = {use.sampling.min_p:g} with [engine.sglang] deterministic = true: SGLang cannot combine "
            "min-p with seeds, and its server would crash. Remove one of the two, or use rollout_top_p"
        )


def explain(settings: SglangSettings) -> str:
    """One sentence about the servers, for `slime plan`."""
    if settings.urls:
        return "servers already running: " + ", ".join(settings.urls)
    layout = layout_of(settings)
    release = installed_version(settings.python)
    where = f"on {layout.gpus} GPU{'s' * (layout.gpus > 1)}" if layout.gpus else "on the CPU"
    if layout.replicas > 1:
        where += f", dp_size {layout.replicas}"
    if not settings.deterministic:
        return f"SGLang {release} {where}; samples differ from run to run (deterministic = true uses the run's seeds)"
    cache = "" if layout.gpus else ", and without a prefix cache (radix cache), which then works only on GPUs"
    return f"SGLang {release} {where}; it samples with the run's seeds, slower{cache}"


def check_count(settings: SglangSettings, engines: int) -> None:
    """Check that `urls` lists one server for each engine. Raises ConfigError: more or fewer."""
    if len(settings.urls) != engines:
        raise ConfigError(
            f"[engine.sglang] urls lists {len(settings.urls)} servers, and the run has {engines} engines. List one "
            f"server per engine, or set rollout_num_engines = {len(settings.urls)}"
        )


def check_python(python: Path | None) -> None:
    """Check that a Python exists and has a supported SGLang. Raises ConfigError: it does not."""
    if python is not None and shutil.which(python) is None:
        raise ConfigError(f"[engine.sglang] python = {str(python)!r} does not exist. {HOW_TO_INSTALL}")
    where = f"in {python or sys.executable}"
    try:
        version = installed_version(python)
        if version is None:
            raise ConfigError(f"SGLang is not installed {where}. {HOW_TO_INSTALL}")
        check_version(version, where)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def check_router(settings: RouterSettings) -> None:
    """Check that a router is installed and accepts its arguments. Raises ConfigError otherwise."""
    use, table = settings.use, "[engine.sglang.router]"
    try:
        arguments = router_arguments(use, settings.python)
    except ValueError as error:
        raise ConfigError(f"{table} use = {use!r}: {error}, or set python to a Python that has it") from None
    free = {each.name for each in arguments} - ROUTER_OWN_ARGUMENTS
    lists = f"`{settings.python or sys.executable} -m {ROUTER_MODULES[use]} --help` lists them"
    problems = [
        f"{table} args.{name}: {use} has no such argument.{did_you_mean(name, free)} It has {len(free)}, {lists}"
        for name in settings.args
        if name not in free
    ]
    values = {"policy": settings.policy, **{name: value for name, value in settings.args.items() if name in free}}
    try:
        arguments_model("RouterArguments", arguments).model_validate(values)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            key = ".".join(map(str, each["loc"]))
            where = "policy" if key == "policy" else f"args.{key}"
            problems.append(f"{table} {where} = {each['input']!r}: {each['msg'][0].lower()}{each['msg'][1:]}; {lists}")
    if problems:
        raise ConfigError("\n".join(problems))


def _check_split(layout: Layout, use: EngineUse) -> None:
    """Check that heads divide over the GPUs: otherwise SGLang fails with an assertion after a minute."""
    config = {**use.model, **cast(dict[str, object], use.model.get("text_config") or {})}
    heads, size = config.get("num_attention_heads"), layout.head_shards
    if isinstance(heads, int) and heads % size:
        rest = layout.gpus // size
        fits = [str(rest * each) for each in range(1, heads + 1) if heads % each == 0]
        raise ConfigError(
            f"[engine.sglang] gpus = {layout.gpus}: the model in {use.hf_checkpoint} has {heads} attention heads, "
            f"which cannot be split over {size} GPUs. Set gpus to one of {', '.join(fits)}"
        )


def _check_drafts(settings: SglangSettings) -> None:
    algorithm = settings.server.get("speculative_algorithm") or settings.server.get("speculative_algo")
    if algorithm and not settings.gpus:
        raise ConfigError(
            f"[engine.sglang.server] speculative_algorithm = {algorithm!r} with gpus = 0: on a CPU, SGLang {NEWEST} "
            "verifies drafts with the likeliest token at any temperature, instead of sampling from the policy. Remove "
            "speculative_algorithm, or set gpus"
        )


ON_CPU = Path(__file__).with_name("on_cpu.py")  # Script that replaces `sglang.launch_server` without GPUs

DEFAULTS: Mapping[str, JsonValue] = {"skip_server_warmup": True, "log_level": "warning", "log_level_http": "error"}
CPU_DEFAULTS: Mapping[str, JsonValue] = {
    "device": "cpu",
    "attention_backend": "torch_native",
    "sampling_backend": "pytorch",
    "grammar_backend": "none",
    "disable_overlap_schedule": True,
    "max_total_tokens": 65536,
    "max_running_requests": 64,
    "sleep_on_idle": True,  # else an idle scheduler uses a whole core, which training needs
}  # Arguments for SGLang without the kernels of its CUDA build; `max_*` limit its memory


def server_command(settings: SglangSettings, setup: EngineSetup) -> list[str]:
    """The command that starts a server with the run's model."""
    python = str(settings.python or sys.executable)
    # -P: without it, Python would import this package's modules from the script's folder first.
    entry = ["-m", "sglang.launch_server"] if settings.gpus else ["-P", str(ON_CPU)]
    arguments: dict[str, JsonValue] = {**DEFAULTS, **({} if settings.gpus else CPU_DEFAULTS)}
    arguments["dtype"] = "bfloat16" if setup.bf16 else "float32"
    arguments["model_path"] = str(setup.hf_checkpoint)
    arguments["enable_deterministic_inference"] = settings.deterministic
    wants_experts = Extra.ROUTED_EXPERTS in setup.want
    arguments["enable_return_routed_experts"] = wants_experts and is_mixture(setup.hf_checkpoint)
    if settings.gpus:
        arguments["tp_size"] = layout_of(settings).tp_size
        arguments["enable_memory_saver"] = setup.offloads  # needed to release GPU memory
    if settings.gpus and settings.deterministic:
        arguments["sampling_backend"] = "pytorch"  # the only backend that uses seeds
    values = arguments | settings.server
    return [python, *entry, *command_line(server_arguments(settings.python), values)]
