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

from slime_core.catalog import Catalog, is_project_code, project_source, version_advice
from slime_core.config.keys import FAMILY_OF_KEY, RunConfig, ServedPlan
from slime_core.config.model_dir import read_model_config
from slime_core.config.settings import ChosenRoles, ResolvedChoice, RoleTable, read_settings
from slime_core.errors import ConfigError
from slime_core.outputs import is_run_folder, paths_matching, real, refuse_occupied, refuse_unwritable, run_id_of
from slime_core.roles import EngineSpec, Extra, GeneratorSpec, SampleField, Spec, TrainerSpec, WorkerGroupSpec
from slime_core.sample import Json

# Plan: a configuration with every name resolved, every setting typed and every file checked, before anything starts.

SpecT = TypeVar("SpecT", bound=Spec[object])


@dataclass(frozen=True, slots=True)
class Plan:
    """A configuration whose names, settings and files are all valid."""

    config: RunConfig
    """The configuration."""
    catalog: Catalog
    """Source of the choices."""
    roles: ChosenRoles
    """The choices of each role. The transport is the negotiated one if the run file chooses none."""
    unused: tuple[str, ...]
    """Sections of the run file whose choice is not used."""
    want: frozenset[Extra] = frozenset()
    """Extras that training wants from the engine."""
    served: ServedPlan = field(default_factory=dict)
    """Served models, by name."""

    def model_config(self) -> dict[str, Json]:
        """The model's config.json."""
        return read_model_config(self.config.run.hf_checkpoint)

    def choose(self, role: type[SpecT], name: str) -> ResolvedChoice[SpecT]:
        """The choice that an evaluation set or a data row names, with the settings of its section."""
        return choice(role, name, 1.0, self.config.roles[role.role], self.catalog)


def choice(role: type[SpecT], name: str, weight: float, table: RoleTable, catalog: Catalog) -> ResolvedChoice[SpecT]:
    """The choice of this name, with its settings from the role's table."""
    registered = catalog.find(role, name)
    settings = read_settings(role.role, name, registered.spec, table.sections.get(name, {}))
    return ResolvedChoice(name, registered, settings, weight)


# Resources of a plan's worker groups.


def worker_groups(plan: Plan) -> list[WorkerGroupSpec]:
    """The trainer's workers and all engines' workers, each as one group with its resources."""
    found: dict[str, WorkerGroupSpec] = {}
    for kind, use in _uses(plan):
        size = use.size + (found[kind].size if kind in found else 0)
        found[kind] = WorkerGroupSpec(kind, size, needs=use.needs * size)
    return list(found.values())


def group_uses(plan: Plan) -> list[WorkerGroupSpec]:
    """Each worker group separately, in the order in which they start."""
    return [use for _, use in _uses(plan)]


def _uses(plan: Plan) -> Iterator[tuple[str, WorkerGroupSpec]]:
    trains = not plan.config.debug.debug_rollout_only
    if trains:
        trainer = plan.roles.one(TrainerSpec)
        size, needs = trainer.spec.world_size(trainer.settings), trainer.spec.needs(trainer.settings)
        yield "trainer", WorkerGroupSpec("trainer", size, needs=needs)
    if not plan.config.generates:
        return
    shared_with = "trainer" if trains and plan.config.cluster.colocate else None
    engines = [("engine", "engine", plan.roles.one(EngineSpec), plan.config.rollout.rollout_num_engines, shared_with)]
    engines += [
        (f"model {name}", f"model-{name}", each.engine, each.engines, None) for name, each in plan.served.items()
    ]
    for kind, name, engine, count, shared in engines:
        size, needs = engine.spec.workers(engine.settings), engine.spec.needs(engine.settings)
        for number in range(count):
            yield (
                kind,
                WorkerGroupSpec(f"{name}-{number}" if count > 1 else name, size, needs=needs, colocate_with=shared),
            )


# The plugin lock: loaded plugins and the choices used from each; stored in checkpoints.


class _Locked(BaseModel):
    """A plugin in a lock. The version of a project file is a prefix of its SHA-256."""

    dist: str = ""
    version: str = ""
    code: str = ""  # digest of the files: an edited plugin may keep its version
    choices: list[str] = []

    def named(self, plugin: str) -> str:
        return f"{plugin} {self.version}".rstrip() + f" ({', '.join(self.choices)})"

    def version_advice(self) -> str:
        return f": {version_advice(self.dist, self.version)}" if self.dist else ""


def lock_plugins(plan: Plan) -> dict[str, Json]:
    """Version, code digest and used choices of each loaded plugin, by plugin."""
    return {plugin: entry.model_dump() for plugin, entry in _lock(plan).items()}


def _lock(plan: Plan) -> dict[str, _Locked]:
    found: dict[str, _Locked] = {each.plugin: _Locked(dist=each.dist) for each in plan.catalog.loaded}
    for chosen in (each for several in plan.roles.values() for each in several):
        registered = chosen.registered
        name = registered.qualified if is_project_code(registered.qualified) else registered.spec.name
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
    """One line about each plugin in use that differs from `saved`."""
    before, now, nothing = _entries(saved), _lock(plan), _Locked()
    lines = (_change(each, before.get(each, nothing), now.get(each, nothing)) for each in {**before, **now})
    return [line for line in lines if line]


def missing_plugins(saved: Mapping[str, Json], catalog: Catalog) -> list[str]:
    """One line about each plugin that the saved run used and that is not loaded now."""
    loaded = {each.plugin for each in catalog.loaded}
    return [
        f"{entry.named(plugin)} is not loaded now{entry.version_advice()}"
        for plugin, entry in _entries(saved).items()
        if plugin not in loaded and any(not is_project_code(choice.partition("/")[2]) for choice in entry.choices)
    ]


def _entries(saved: Mapping[str, Json]) -> dict[str, _Locked]:
    return {plugin: _Locked.model_validate(entry) for plugin, entry in saved.items()}


def _change(plugin: str, before: _Locked, now: _Locked) -> str:
    used = bool(before.choices or now.choices)
    gone = [choice for choice in before.choices if choice not in now.choices]
    if before.choices and now == _Locked():
        return f"{before.named(plugin)} is not loaded now{before.version_advice()}"
    if now.choices and before == _Locked():
        return f"{plugin} {now.version} brings {', '.join(now.choices)}, which came from another plugin"
    if used and before.version != now.version:
        return f"{before.named(plugin)} is {now.version} now{before.version_advice()}"
    if now.choices and before.code and before.code != now.code:
        return f"{before.named(plugin)} has changed code under the same version"
    return f"{plugin} brought {', '.join(gone)}, which comes from another plugin now" if gone else ""


def code_digest(modules: Iterable[str]) -> str:
    """Prefix of a SHA-256 of the files of loaded modules and of their outermost packages; empty without a file."""
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


# Output paths: keys that name them, and whether existing content may be replaced.

OUTPUT_KEYS = ("save", "save_hf", "save_debug_train_data")
"""Keys that name an output path. All other output is inside `save`."""
RUN_PARTS = {
    *("checkpoints", "samples", "logs", "scratch", "report", "best", "tensorboard", "lock", ".slime-run"),
    *("run.toml", "metrics.jsonl", "ledger.jsonl", "spans.jsonl", "resumes.jsonl", "eval.json"),
}
"""Files and folders that the core writes in a run folder."""


def check_outputs(config: RunConfig) -> None:
    """Raise ConfigError unless a run replaces only its own output, and its outputs do not overlap."""
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
            if there.is_relative_to(place) or (place.is_relative_to(there) and not _is_separate(place, there, other)):
                both = f"{key} = {template!r} and {other} = {str(there)!r}"
                raise ConfigError(f"{both} overlap. Give two paths, neither inside the other")
        places[key] = place
        for folder in place.parents:
            if folder != root and is_run_folder(folder):
                raise ConfigError(f"{key} = {template!r} is inside another run's folder, {folder}. Give another path")
        refuse_unwritable(f"{key} = {template!r}", place / "new" if key == "save_hf" else place)
        before: dict[str, Json] = {}
        with suppress(OSError, ValueError):
            before = tomllib.loads((root / "run.toml").read_text("utf-8"))
        is_continued = key == "save_debug_train_data" and before.get(key) == template
        for path in () if is_continued else paths_matching(template):
            refuse_occupied(f"{key} = {template!r}", path, run_id_of(root))


def _is_separate(place: Path, there: Path, key: str) -> bool:
    return key == "save" and place.relative_to(there).parts[0] not in RUN_PARTS


# Media in prompts: rejected if the generator would drop them.


def check_media(plan: Plan) -> None:
    """Raise ConfigError if a generator would drop media of `multimodal_keys`, in training or evaluation."""
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
        reason = f"prompts with {' and '.join(kinds)} cannot be used here: {'; '.join(unable)}"
        raise ConfigError(f"{key}: {reason}. Leave it out, or choose a generator that reads sample.multimodal_inputs")
