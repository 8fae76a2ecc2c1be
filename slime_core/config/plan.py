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
from string import Formatter
from typing import TypeVar

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


def lock_plugins(plan: Plan) -> dict[str, Json]:
    """Version and code of each loaded plugin and the choices that the plan takes from it, by plugin.

    A file of the project has no version: the beginning of its SHA-256 stands for one. An editable plugin keeps its
    version when it changes, so `code` is a digest of the files as they are now.
    """
    taken: dict[str, list[Json]] = {}
    for role, several in plan.roles.items():
        for chosen in several:
            found = chosen.registered
            name = found.qualified if is_in_project(found.qualified) else found.spec.name
            taken.setdefault(found.plugin, []).append(f"{role}/{name}")
    loaded = plan.catalog.loaded
    dists = {each.plugin: each.dist for each in loaded}
    versions = {each.plugin: each.version for each in loaded}
    modules = {
        each.plugin: [other.origin.partition(":")[0] for other in loaded if other.plugin == each.plugin]
        for each in loaded
    }
    return {
        plugin: {
            "dist": (dist := dists.get(plugin, "")),
            "version": versions[plugin] if dist else _digest(plugin, plan.catalog),
            "code": code_digest(modules[plugin]) if dist and plugin in taken else "",
            "choices": taken.get(plugin, []),
        }
        for plugin in dict.fromkeys([*versions, *taken])
    }


def changed_plugins(saved: Mapping[str, Json], plan: Plan) -> list[str]:
    """A line about each plugin that the run uses and that is another one now than in `saved`."""
    now = lock_plugins(plan)
    return [
        line
        for plugin in dict.fromkeys([*saved, *now])
        if (line := _change(plugin, _entry(saved, plugin), _entry(now, plugin)))
    ]


def missing_plugins(saved: Mapping[str, Json], catalog: Catalog) -> list[str]:
    """A line about each plugin that the run took something from and that is not loaded now."""
    loaded = {each.plugin for each in catalog.loaded}
    entries = {plugin: _entry(saved, plugin) for plugin in saved if plugin not in loaded}
    return [
        f"{_named(plugin, entry)} is not loaded now{_install(entry)}"
        for plugin, entry in entries.items()
        if any(not is_in_project(choice.partition("/")[2]) for choice in _choices(entry))
    ]


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


def _digest(plugin: str, catalog: Catalog) -> str:
    source = project_source(plugin, catalog.root)
    return f"sha256:{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}" if source is not None else ""


def _change(plugin: str, before: Mapping[str, Json], now: Mapping[str, Json]) -> str:
    had, has, named = _choices(before), _choices(now), _named(plugin, before)
    if had and not now:
        return f"{named} is not loaded now{_install(before)}"
    if has and not before:
        return f"{plugin} {now.get('version')} brings {', '.join(has)}, which came from another plugin"
    if (had or has) and before.get("version") != now.get("version"):
        return f"{named} is {now.get('version')} now{_install(before)}"
    if has and before.get("code") and before["code"] != now.get("code"):
        return f"{named} has other code now, under the same version"
    gone = [choice for choice in had if choice not in has]
    return f"{plugin} brought {', '.join(gone)}, which comes from another plugin now" if gone else ""


def _named(plugin: str, entry: Mapping[str, Json]) -> str:
    version = entry.get("version") or ""
    return f"{plugin} {version}".rstrip() + f" ({', '.join(_choices(entry))})"


def _install(entry: Mapping[str, Json]) -> str:
    return f": {how_to_get(str(entry['dist']), str(entry['version']))}" if entry.get("dist") else ""


def _entry(lock: Mapping[str, Json], plugin: str) -> Mapping[str, Json]:
    entry = lock.get(plugin)
    return entry if isinstance(entry, dict) else {}


def _choices(entry: Mapping[str, Json]) -> list[str]:
    choices = entry.get("choices")
    return [str(each) for each in choices] if isinstance(choices, list) else []


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
    return key == "save" and place.relative_to(there).parts[0] not in RUN_PARTS


def _kept_dumps(key: str, template: str, root: Path) -> bool:
    before: dict[str, Json] = {}
    with suppress(OSError, ValueError):
        before = tomllib.loads((root / "run.toml").read_text("utf-8"))
    return key == "save_debug_train_data" and before.get(key) == template


# What becomes of a prompt on its way to the engine: nobody leaves its media out unsaid.


def check_media(plan: Plan) -> None:
    """See that no generator drops what `multimodal_keys` of the run, or of an evaluation set, reads.

    A generator that looks at a sample's media itself is left alone: it may make text of them, or ask an engine that
    takes them.

    Raises:
        ConfigError: one does; names it, and every other part that could not make use of media either.
    """
    config, generator = plan.config, plan.roles.one(GeneratorSpec)
    if not config.generates:
        return
    whole = [*config.data.multimodal_keys]
    uses = {"multimodal_keys": (whole, generator)}
    for name, own in config.evaluation.eval_prompt_data.items():
        kinds = whole if own.multimodal_keys is None else [*own.multimodal_keys]
        chosen = plan.choose(GeneratorSpec, own.generator) if own.generator else generator
        uses[f"eval_prompt_data.{name}.multimodal_keys"] = kinds, chosen
    for key, (kinds, chosen) in uses.items():
        if kinds and chosen.spec.text_only:
            unable = "; ".join(_unable(plan, chosen))
            raise ConfigError(
                f"{key}: prompts with {' and '.join(kinds)} cannot be used here: {unable}. Leave it out to train on "
                "the text alone, or choose a generator of your own that reads sample.multimodal_inputs"
            )


def _unable(plan: Plan, generator: Chosen[GeneratorSpec]) -> Iterator[str]:
    engine, trainer = plan.roles.one(EngineSpec), plan.roles.one(TrainerSpec)
    yield f"generator {generator.reference!r} gives engines the text of a prompt alone"
    if not engine.spec.takes_media:
        yield f"engine {engine.reference!r} takes no media"
    reads = trainer.spec.reads(trainer.settings)
    if SampleField.MULTIMODAL_TRAIN_INPUTS not in reads:
        yield f"trainer {trainer.reference!r} reads no multimodal_train_inputs"
