"""Writes the arguments of SGLang's server or of a router as JSON. The program's own Python runs this script.

It imports neither this package nor slime-core. It reads the program's argument parser, so the list includes arguments
of this build and of its plugins.

Example:

    python -P list_arguments.py FILE sglang        # [{"name": "mem_fraction_static", "kind": "number", ...}, ...]
"""

import argparse
import importlib
import importlib.util
import json
import sys
from pathlib import Path

PROGRAMS = {
    "sglang": ("sglang.srt.server_args", "ServerArgs"),
    "smg": ("smg.router_args", "RouterArgs"),
    "sglang-router": ("sglang_router.router_args", "RouterArgs"),
}  # Module and class of each program's parser
KINDS = {int: "integer", float: "number", json.loads: "json"}
JSON_PARSERS = ("json_list_type", "parse_cuda_graph_config_arg")  # SGLang's functions that parse JSON


def main(path: str, program: str) -> None:
    """Write the arguments to a file, since SGLang's import prints to stdout."""
    if program == "sglang":
        _make_importable()
    module, name = PROGRAMS[program]
    parser = argparse.ArgumentParser(add_help=False)
    getattr(importlib.import_module(module), name).add_cli_args(parser)
    entries = [entry for action in parser._actions for entry in entries_of(action)]
    Path(path).write_text(json.dumps(entries), "utf-8")


def entries_of(action: argparse.Action) -> list[dict[str, object]]:
    """One entry per name of an argument, without its `--no-` forms."""
    names = [each.removeprefix("--").replace("-", "_") for each in action.option_strings if each.startswith("--")]
    negative = {name: f"no_{name}" for name in names if f"no_{name}" in names}
    entry: dict[str, object] = {"kind": _kind(action), "help": _help(action)}
    if action.choices is not None:
        # Some of SGLang's choices are sets, whose order varies.
        entry["choices"] = sorted((each for each in action.choices if isinstance(each, str | int)), key=str)
    if action.nargs in ("+", "*"):
        entry["many"] = True
    if _is_plain(action.default) and isinstance(action.default, bool) == (entry["kind"] == "switch"):
        entry["default"] = action.default
    return [
        {"name": name, **entry, **({"negative": negative[name]} if name in negative else {})}
        for name in names
        if name not in negative.values()
    ]


def _kind(action: argparse.Action) -> str:
    if action.nargs == 0:
        return "switch"
    parser = action.type
    if getattr(parser, "__name__", "") in JSON_PARSERS:
        return "json"
    return next((kind for each, kind in KINDS.items() if parser is each), "text")


def _help(action: argparse.Action) -> str:
    text = action.help if action.help not in (None, argparse.SUPPRESS) else ""
    try:
        text = text % {"default": action.default, "choices": action.choices, "type": action.type, "prog": "sglang"}
    except (TypeError, ValueError, KeyError):  # an unescaped percent sign
        text = text.replace("%%", "%")
    return " ".join(text.split())


def _is_plain(value: object) -> bool:
    if value is None or value == argparse.SUPPRESS:
        return False
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _make_importable() -> None:
    """Without CUDA, install the stubs of `on_cpu.py`."""
    import torch

    if torch.cuda.is_available():
        return
    spec = importlib.util.spec_from_file_location("on_cpu", Path(__file__).with_name("on_cpu.py"))
    assert spec is not None, "the path ends in .py"
    assert spec.loader is not None, "the path ends in .py"
    on_cpu = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = on_cpu
    spec.loader.exec_module(on_cpu)
    on_cpu.install()


if __name__ == "__main__":
    main(*sys.argv[1:])
