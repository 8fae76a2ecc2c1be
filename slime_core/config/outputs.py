"""Which keys of a run name a place to write, and whether what is there may be replaced.

Example:

    check_outputs(config)       # ConfigError: save_hf = 'models/base': models/base is there already, with ...
"""

import tomllib
from contextlib import suppress
from pathlib import Path
from string import Formatter

from slime_core.config.run_config import RunConfig
from slime_core.errors import ConfigError
from slime_core.outputs import is_run_folder, named_by, real, refuse_occupied, run_id_of
from slime_core.sample import Json

OUTPUT_KEYS = ("save", "save_hf", "save_debug_train_data")
"""Keys that name a path to write to; the others of a run write inside `save`."""
RUN_PARTS = frozenset(
    (
        *("checkpoints", "samples", "logs", "scratch", "report", "best", "tensorboard", "lock", ".slime-run"),
        *("run.toml", "metrics.jsonl", "ledger.jsonl", "spans.jsonl", "resumes.jsonl", "eval.json"),
    )
)
"""What the core writes in a run folder."""


def check_outputs(config: RunConfig) -> None:
    """See that a run replaces nothing that it did not make, and that its outputs do not replace each other.

    Raises:
        ConfigError: one would.
    """
    root = real(config.run.save)
    if not is_run_folder(root):
        refuse_occupied(_said("save", str(config.run.save)), root)
    places = {"save": root}
    made = _made_before(root)
    for key, template in (("save_hf", config.run.save_hf), ("save_debug_train_data", _dumps(config))):
        if template is None:
            continue
        place = places[key] = real(_filled(template))
        if root.is_relative_to(place) or (place.is_relative_to(root) and place.relative_to(root).parts[0] in RUN_PARTS):
            raise ConfigError(
                f"{_said(key, template)} would replace a part of the run folder {config.run.save}: give another path"
            )
        if key == "save_debug_train_data" and made.get(key) == template:
            continue
        for path in named_by(template):
            refuse_occupied(_said(key, template), path, run_id_of(root))
    _refuse_nested(places)


def _dumps(config: RunConfig) -> str | None:
    return config.debug.save_debug_train_data


def _said(key: str, value: str) -> str:
    return f"{key} = {value!r}"


def _filled(template: str) -> str:
    return "".join(text + "0" * (name is not None) for text, name, *_ in Formatter().parse(template))


def _made_before(root: Path) -> dict[str, Json]:
    """The keys that the run had when it was started last."""
    with suppress(OSError, ValueError):
        return tomllib.loads((root / "run.toml").read_text("utf-8"))
    return {}


def _refuse_nested(places: dict[str, Path]) -> None:
    """A directory is replaced as a whole, with what another key wrote there."""
    model, dumps = places.get("save_hf"), places.get("save_debug_train_data")
    if model and dumps and (dumps.is_relative_to(model) or model.is_relative_to(dumps)):
        raise ConfigError(
            f"save_hf writes to {model} and save_debug_train_data to {dumps}: one would replace the other. Give two "
            "paths, neither inside the other"
        )
