"""The ends that a checkpoint's model names: its chat template's among them, for servers that read the files alone."""

import json
from pathlib import Path


def add_end(model: Path, end: int) -> None:
    """Have generation_config.json of a model directory that a trainer wrote name an end id besides its own.

    Raises:
        OSError: it cannot be written.
    """
    config, generation = (
        json.loads(path.read_text("utf-8")) if path.is_file() else {}
        for path in (model / "config.json", model / "generation_config.json")
    )
    named = generation.get("eos_token_id", config.get("eos_token_id"))
    ends = named if isinstance(named, list) else [] if named is None else [named]
    if config and end not in ends:
        generation["eos_token_id"] = [*ends, end] if ends else end
        (model / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n", encoding="utf-8")
