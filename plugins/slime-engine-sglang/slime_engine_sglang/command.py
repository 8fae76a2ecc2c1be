"""The command line of a server, from the settings and what the run says of it.

Example:

    server_command(settings, setup)     # ["/opt/sglang/bin/python", "-m", "sglang.launch_server", "--model-path", ...]

Host and port are added where it is started: its place is known there.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from slime_core.roles import EngineSetup, Extra, command_line
from slime_engine_sglang.arguments import server_arguments
from slime_engine_sglang.checkpoint import is_mixture
from slime_engine_sglang.layout import layout_of
from slime_engine_sglang.settings import SglangSettings

ON_CPU = Path(__file__).with_name("on_cpu.py")
"""What is run instead of `sglang.launch_server` where there is no GPU."""

ALWAYS: Mapping[str, JsonValue] = {"skip_server_warmup": True, "log_level": "warning", "log_level_http": "error"}
CPU: Mapping[str, JsonValue] = {
    "device": "cpu",
    "attention_backend": "torch_native",
    "sampling_backend": "pytorch",
    "grammar_backend": "none",
    "disable_overlap_schedule": True,
    "max_total_tokens": 65536,
    "max_running_requests": 64,
    "sleep_on_idle": True,  # else a scheduler without requests takes a whole core, of those that train
}
"""What SGLang does without the kernels of its CUDA build; `max_*` are bounds of its memory."""


def server_command(settings: SglangSettings, setup: EngineSetup) -> list[str]:
    """What starts a server that serves the model of a run."""
    python = str(settings.python or sys.executable)
    # -P: the folder of a script would be searched before all others, and its modules are this package's.
    entry = ["-m", "sglang.launch_server"] if settings.gpus else ["-P", str(ON_CPU)]
    arguments: dict[str, JsonValue] = {**ALWAYS, **({} if settings.gpus else CPU)}
    arguments["dtype"] = "bfloat16" if setup.bf16 else "float32"
    arguments["model_path"] = str(setup.hf_checkpoint)
    arguments["enable_deterministic_inference"] = settings.deterministic
    wants_experts = Extra.ROUTED_EXPERTS in setup.want
    arguments["enable_return_routed_experts"] = wants_experts and is_mixture(setup.hf_checkpoint)
    if settings.gpus:
        arguments["tp_size"] = layout_of(settings).tp_size
        arguments["enable_memory_saver"] = setup.offloads  # else nothing of it can be given up
    if settings.gpus and settings.deterministic:
        arguments["sampling_backend"] = "pytorch"  # the only one that heeds seeds
    given = arguments | settings.server
    return [python, *entry, *command_line(server_arguments(settings.python), given)]
