"""The plan: a run's configuration with every name resolved, every setting typed and every file checked.

Derived from it are the worker groups with their resources, the plugin lock that checkpoints store, and the checks of
output paths and prompts. On resume, the lock shows which plugins have changed.

Example:

    plan = resolve(config, Catalog.discover())
    plan.roles.one(EngineSpec).settings       # validated
    changed_plugins(saved, plan)    # on resume: ["slime-reward-math 0.1.0 (reward/math) is 0.2.0 now: …"]
"""

import hashlib
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from slime_core.catalog import Catalog, how_to_get, is_in_project, project_source
from slime_core.config.keys import FAMILY_OF_KEY, RunConfig, ServedPlan
from slime_core.config.model_dir import read_model_config
from slime_core.config.settings import Chosen, ChosenRoles, RoleTable, read_settings
from slime_core.errors import ConfigError
from slime_core.outputs import is_run_folder, named_by, real, refuse_occupied, refuse_unwritable, run_id_of
from slime_core.roles import EngineSpec, Extra, GeneratorSpec, GroupUse, SampleField, Spec, TrainerSpec
from slime_core.sample import Json

# Plan: a configuration with every name resolved, every setting typed and every file seen, before anything starts.

SpecT = TypeVar("SpecT", bound=Spec[object])


@dataclass(frozen=True, slots=True)
class Plan:
    """A configuration whose names, settings and files are all known to be good."""

    config: RunConfig
    """The configuration."""
    catalog: Catalog
    """Where the choices come from."""
    roles: ChosenRoles
    """The choices of each role; of transports the one that is agreed, where the run file says none."""
    unused: tuple[str, ...]
    """Sections of the run file that nothing selected."""
    want: frozenset[Extra] = frozenset()
    """What training wants of the engine's answers beyond tokens and log-probs."""
    served: ServedPlan = field(default_factory=dict)
    """Models that are served beside the policy, by name."""

    def model_config(self) -> dict[str, Json]:
        """The model's config.json."""
        return read_model_config(self.config.run.hf_checkpoint)

    def choose(self, role: type[SpecT], name: str) -> Chosen[SpecT]:
        """What an evaluation set or a row of data names, with the settings of its section and weight 1.

        Raises:
            UnknownName: nobody offers it.
            ConfigError: its settings are refused, or several plugins offer it.
        """
        return choice(role, name, 1.0, self.config.roles[role.role], self.catalog)


def choice(role: type[SpecT], name: str, weight: float, table: RoleTable, catalog: Catalog) -> Chosen[SpecT]:
    """What somebody offers under a name, with its settings of the role's table; errors as in `Plan.choose`."""
    registered = catalog.find(role, name)
    settings = read_settings(role.role, name, registered.spec, table.sections.get(name, {}))
    return Chosen(name, registered, settings, weight)


# What a plan's worker groups need of their machines.


def worker_groups(plan: Plan) -> list[GroupUse]:
    """The workers of the trainer and of all engines, each with what they need together."""
    found: dict[str, GroupUse] = {}
    for kind, use in _uses(plan):
        size = use.size + (found[kind].size if kind in found else 0)
        found[kind] = GroupUse(kind, size, use.needs * size)
    return list(found.values())


def group_uses(plan: Plan) -> list[GroupUse]:
    """Each group by itself, in the order in which they start."""
    return [use for _, use in _uses(plan)]


def _uses(plan: Plan) -> Iterator[tuple[str, GroupUse]]:
    trains = not plan.config.debug.debug_rollout_only
    if trains:
        trainer = plan.roles.one(TrainerSpec)
        size, needs = trainer.spec.world_size(trainer.settings), trainer.spec.needs(trainer.settings)
        yield "trainer", GroupUse("trainer", size, needs)
    if not plan.config.generates:
        return
    beside = "trainer" if trains and plan.config.cluster.colocate else None
    engines = [("engine", "engine", plan.roles.one(EngineSpec), plan.config.rollout.rollout_num_engines, beside)]
    engines += [
        (f"model {name}", f"model-{name}", each.engine, each.engines, None) for name, each in plan.served.items()
    ]
    for kind, name, engine, count, shared in engines:
        size, needs = engine.spec.workers(engine.settings), engine.spec.needs(engine.settings)
        for number in range(count):
            yield kind, GroupUse(f"{name}-{number}" if count > 1 else name, size, needs, shared)


# The plugin lock: which plugins a run has loaded, and what it took from each; kept in checkpoints.


class _Locked(BaseModel):
    """A plugin in a lock. A file of the project has no version: the beginning of its SHA-256 stands for one."""

    dist: str = ""
    version: str = ""
    code: str = ""  # a digest of the files, because an editable plugin keeps its version when it changes
    choices: list[str] = []

    def named(self, plugin: str) -> str:
        return f"{plugin} {self.version}".rstrip() + f" ({', '.join(self.choices)})"

    def how_to_get(self) -> str:
        return f": {how_to_get(self.dist, self.version)}" if self.dist else ""


def lock_plugins(plan: Plan) -> dict[str, Json]:
    """Version and code of each loaded plugin and the choices that the plan takes from it, by plugin."""
    return {plugin: entry.model_dump() for plugin, entry in _lock(plan).items()}


def _lock(plan: Plan) -> dict[str, _Locked]:
    found: dict[str, _Locked] = {each.plugin: _Locked(dist=each.dist) for each in plan.catalog.loaded}
    for chosen in (each for several in plan.roles.values() for each in several):
        registered = chosen.registered
        name = registered.qualified if is_in_project(registered.qualified) else registered.spec.name
        found.setdefault(registered.plugin, _Locked()).choices.append(f"{registered.spec.role}/{name}")
    for plugin, entry in found.items():
        loaded = [each for each in plan.catalog.loaded if each.plugin == plugin]
        if entry.dist and entry.choices:
            entry.code = code_digest(each.origin.partition(":")[0] for each in loaded)
        source = project_source(plugin, plan.catalog.root)
        if entry.dist:
            entry.version = loaded[-1].version
        elif source is not None:
            entry.version = f"sha256:{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    return found


def changed_plugins(saved: Mapping[str, Json], plan: Plan) -> list[str]:
    """A line about each plugin that the run uses and that is another one now than in `saved`."""
    before, now, nothing = _entries(saved), _lock(plan), _Locked()
    lines = (_change(each, before.get(each, nothing), now.get(each, nothing)) for each in {**before, **now})
    return [line for line in lines if line]


def missing_plugins(saved: Mapping[str, Json], catalog: Catalog) -> list[str]:
    """A line about each plugin that the run took something from and that is not loaded now."""
    loaded = {each.plugin for each in catalog.loaded}
    return [
        f"{entry.named(plugin)} is not loaded now{entry.how_to_get()}"
        for plugin, entry in _entries(saved).items()
        if plugin not in loaded and any(not is_in_project(choice.partition("/")[2]) for choice in entry.choices)
    ]


def _entries(saved: Mapping[str, Json]) -> dict[str, _Locked]:
    return {plugin: _Locked.model_validate(entry) for plugin, entry in saved.items()}


def _change(plugin: str, before: _Locked, now: _Locked) -> str:
    used = bool(before.choices or now.choices)
    gone = [choice for choice in before.choices if choice not in now.choices]
    if before.choices and now == _Locked():
        return f"{before.named(plugin)} is not loaded now{before.how_to_get()}"
    if now.choices and before == _Locked():
        return f"{plugin} {now.version} brings {', '.join(now.choices)}, which came from another plugin"
    if used and before.version != now.version:
        return f"{before.named(plugin)} is {now.version} now{before.how_to_get()}"
    if now.choices and before.code and before.code != now.code:
        return f"{before.named(plugin)} has other code now, under the same version"
    return f"{plugin} brought {', '.join(gone)}, which comes from another plugin now" if gone else ""


def code_digest(modules: Iterable[str]) -> str:
    """The beginning of a SHA-256 of names and contents; empty where no file is found.

    Args:
        modules: loaded ones. Of one in a package, all files of the outermost package count.
    """
    digest, found = hashlib.sha256(), False
    for root, file in sorted({place for module in modules for place in _files(module)}):
        data = file.read_bytes()
        digest.update(f"{file.relative_to(root).as_posix()} {len(data)}\n".encode("utf-8", "surrogatepass") + data)
        found = True
    return f"sha256:{digest.hexdigest()[:12]}" if found else ""


def _files(module: str) -> list[tuple[Path, Path]]:
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        file = getattr(sys.modules.get(".".join(parts[:end])), "__file__", None)
        if file is not None:
            path, root = Path(file), Path(file).parent
            return [(root, each) for each in root.rglob("*.py")] if path.name == "__init__.py" else [(root, path)]
    return []


# Which keys of a run name a place to write, and whether what is there may be replaced.

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
        place = real(template.format(rollout_id=0, rank=0))
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
        before: dict[str, Json] = {}
        with suppress(OSError, ValueError):
            before = tomllib.loads((root / "run.toml").read_text("utf-8"))
        is_continued = key == "save_debug_train_data" and before.get(key) == template
        for path in () if is_continued else named_by(template):
            refuse_occupied(f"{key} = {template!r}", path, run_id_of(root))


def _is_beside(place: Path, there: Path, key: str) -> bool:
    return key == "save" and place.relative_to(there).parts[0] not in RUN_PARTS


# Media of prompts are used, or refused.


def check_media(plan: Plan) -> None:
    """See that no generator drops what `multimodal_keys` of the run, or of an evaluation set, reads.

    A generator that reads a sample's media itself may make text of them, or ask an engine that takes them.

    Raises:
        ConfigError: one does; names it, and every other part that could not make use of media either.
    """
    config, generator = plan.config, plan.roles.one(GeneratorSpec)
    trainer = plan.roles.one(TrainerSpec)
    whole = [*config.data.multimodal_keys]
    uses = {"multimodal_keys": (whole, generator)}
    for name, own in config.evaluation.eval_prompt_data.items():
        kinds = whole if own.multimodal_keys is None else [*own.multimodal_keys]
        chosen = plan.choose(GeneratorSpec, own.generator) if own.generator else generator
        uses[f"eval_prompt_data.{name}.multimodal_keys"] = kinds, chosen
    for key, (kinds, chosen) in uses.items():
        if not (kinds and chosen.spec.text_only and config.generates):
            continue
        unable = [f"generator {chosen.reference!r} gives engines the text of a prompt alone"]
        if SampleField.MULTIMODAL_TRAIN_INPUTS not in trainer.spec.reads(trainer.settings):
            unable.append(f"trainer {trainer.reference!r} reads no multimodal_train_inputs")
        raise ConfigError(
            f"{key}: prompts with {' and '.join(kinds)} cannot be used here: {'; '.join(unable)}. Leave it out to "
            "train on the text alone, or choose a generator of your own that reads sample.multimodal_inputs"
        )
