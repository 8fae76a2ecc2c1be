"""Which keys of a run name a place to write, and whether what is there may be replaced.

Example:

    check_outputs(config)       # ConfigError: save_hf = 'models/base': models/base is there already, with ...
"""

import tomllib
from contextlib import suppress
from pathlib import Path
from string import Formatter

from slime_core.config.families import FAMILY_OF_KEY
from slime_core.config.run_config import RunConfig
from slime_core.errors import ConfigError
from slime_core.outputs import is_run_folder, named_by, real, refuse_occupied, refuse_unwritable, run_id_of
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
        refuse_occupied(f"save = {str(config.run.save)!r}", root)
        refuse_unwritable(f"save = {str(config.run.save)!r}", root / "new")
    places = {"save": root}
    for key in OUTPUT_KEYS[1:]:
        template = getattr(getattr(config, FAMILY_OF_KEY[key]), key)
        if template is None:
            continue
        place = real("".join(text + "0" * (name is not None) for text, name, *_ in Formatter().parse(template)))
        for other, there in places.items():
            if there.is_relative_to(place) or (place.is_relative_to(there) and not _is_beside(place, there, other)):
                raise ConfigError(
                    f"{key} = {template!r} and {other} = {str(there)!r}: one would replace the other, or a part of it. "
                    "Give two paths, neither inside the other"
                )
        places[key] = place
        for folder in place.parents:
            if folder != root and is_run_folder(folder):
                raise ConfigError(
                    f"{key} = {template!r} is inside the folder of another run, {folder}. Give another path"
                )
        refuse_unwritable(f"{key} = {template!r}", place / "new" if key == "save_hf" else place)
        if not _kept_dumps(key, template, root):
            for path in named_by(template):
                refuse_occupied(f"{key} = {template!r}", path, run_id_of(root))


def _is_beside(place: Path, there: Path, key: str) -> bool:
    """Whether a place inside another is apart from what is written there: in a run folder, under a name of its own."""
    return key == "save" and place.relative_to(there).parts[0] not in RUN_PARTS


def _kept_dumps(key: str, template: str, root: Path) -> bool:
    """Whether files that a template names are of this run: a dump has no mark, and the run file says what was asked."""
    before: dict[str, Json] = {}
    with suppress(OSError, ValueError):
        before = tomllib.loads((root / "run.toml").read_text("utf-8"))
    return key == "save_debug_train_data" and before.get(key) == template
