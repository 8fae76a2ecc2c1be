"""The ends that a checkpoint's model names: its chat template's among them, for servers that read the files alone."""

import json
from pathlib import Path

from slime_core.errors import RunFolderError

GENERATION = "generation_config.json"


def add_end(model: Path, end: int) -> None:
    """Have generation_config.json of a model directory name an end id besides those that it names.

    Raises:
        RunFolderError: a file is not a JSON object.
        OSError: it cannot be written.
    """
    if not (model / "config.json").is_file():
        return
    config, generation = _read(model / "config.json"), _read(model / GENERATION)
    named = generation.get("eos_token_id", config.get("eos_token_id"))
    ends = named if isinstance(named, list) else [] if named is None else [named]
    if end not in ends:
        generation["eos_token_id"] = [*ends, end] if ends else end
        (model / GENERATION).write_text(json.dumps(generation, indent=2) + "\n", encoding="utf-8")


def _read(path: Path) -> dict[str, object]:
    try:
        values: object = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise RunFolderError(f"cannot read {path}: {error}") from None
    if not isinstance(values, dict):
        raise RunFolderError(f"cannot read {path}: expected a JSON object, found a {type(values).__name__}")
    return values
