"""Portable model directories, read identically by transformers 4.57 and 5.

Example:

    model.save_pretrained(directory)
    make_portable(directory)
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from slime_core.sample import Json

ONLY_5 = {"TokenizersBackend": "PreTrainedTokenizerFast", "SentencePieceBackend": "PreTrainedTokenizer"}
"""Tokenizer classes of transformers 5 only -> classes that both versions have."""
GLOBAL, LOCAL = "full_attention", "sliding_attention"
"""Types of layers whose positions may differ."""


def make_portable(directory: Path) -> None:
    """Complete config.json and tokenizer_config.json, and give all files the mode of new ones.

    Raises:
        OSError: a file cannot be read or written.
    """
    _rewrite(directory / "config.json", readable_by_both)
    _rewrite(directory / "tokenizer_config.json", _known_tokenizer)
    umask = _umask(directory)
    for path in directory.iterdir():
        if path.is_file():
            path.chmod(0o666 & ~umask)


def readable_by_both(config: Mapping[str, Json]) -> dict[str, Json]:
    """A config.json with positions and experts under the keys of transformers 4 and of 5."""
    found = {
        key: readable_by_both(value) if key.endswith("_config") and isinstance(value, dict) else value
        for key, value in config.items()
    }
    if "num_local_experts" in found:
        found.setdefault("num_experts", found["num_local_experts"])
    rope = found.get("rope_parameters")
    if not isinstance(rope, dict):
        if "rope_theta" not in found:
            return found
        scaling = found.get("rope_scaling")
        stretched = {"rope_type": "default", **(scaling if isinstance(scaling, dict) else {})}
        stretched["rope_type"] = stretched.pop("type", stretched["rope_type"])
        return {**found, "rope_parameters": {"rope_theta": found["rope_theta"], **stretched}}
    whole, local = rope.get(GLOBAL, rope), rope.get(LOCAL)
    if isinstance(local, dict) and "rope_theta" in local:
        found["rope_local_base_freq"] = local["rope_theta"]
    if not isinstance(whole, dict) or "rope_theta" not in whole:
        return found
    found["rope_theta"] = whole["rope_theta"]
    if "partial_rotary_factor" in whole:
        found["partial_rotary_factor"] = whole["partial_rotary_factor"]
    if whole.get("rope_type", "default") != "default" and not found.get("rope_scaling"):
        found["rope_scaling"] = {key: value for key, value in whole.items() if key != "rope_theta"}
    return found


def _known_tokenizer(config: Mapping[str, Json]) -> dict[str, Json]:
    found = dict(config)
    name = str(found.get("tokenizer_class"))
    if name in ONLY_5:
        found["tokenizer_class"] = ONLY_5[name]
    if isinstance(extra := found.get("extra_special_tokens"), list):  # a mapping in transformers 4
        del found["extra_special_tokens"]
        found.setdefault("additional_special_tokens", extra)
    return found


def _rewrite(path: Path, change: Callable[[Mapping[str, Json]], dict[str, Json]]) -> None:
    if not path.is_file():
        return
    before: dict[str, Json] = json.loads(path.read_text("utf-8"))
    if (after := change(before)) != before:
        path.write_text(json.dumps(after, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _umask(directory: Path) -> int:
    probe = directory / f".umask-{os.getpid()}"
    descriptor = os.open(probe, os.O_CREAT, 0o666)
    try:
        return 0o666 & ~os.fstat(descriptor).st_mode
    finally:
        os.close(descriptor)
        probe.unlink()
