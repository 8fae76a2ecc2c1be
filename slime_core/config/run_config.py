"""RunConfig: what a run file and a command line say, sorted into families of keys and tables of roles.

Example:

    config = parse_config({"prompt_data": "train.jsonl", "reward": {"use": "math"}, ...})
    config.rollout.rollout_batch_size
    config.roles["reward"].use
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slime_core.config.alarms import AlarmArgs
from slime_core.config.cluster import ClusterArgs
from slime_core.config.companion_args import CriticArgs, DistillationArgs, ReferenceArgs
from slime_core.config.families import (
    FAMILIES,
    DataArgs,
    DebugArgs,
    EvalArgs,
    OptimArgs,
    RolloutArgs,
    RunArgs,
)
from slime_core.config.plugin_table import TABLE, plugins_table
from slime_core.config.role_table import DEFAULT_USE, RoleTable
from slime_core.config.served import ServedArgs
from slime_core.roles import PluginSet
from slime_core.sample import Json


@dataclass(frozen=True, slots=True)
class RunConfig:
    """A whole configuration; each part of the house is handed its family only."""

    data: DataArgs
    """Prompts."""
    rollout: RolloutArgs
    """Rollout."""
    evaluation: EvalArgs
    """Evaluation."""
    optim: OptimArgs
    """Optimization."""
    reference: ReferenceArgs
    """Reference model and KL terms."""
    distillation: DistillationArgs
    """On-policy distillation."""
    critic: CriticArgs
    """Critic."""
    served: ServedArgs
    """Models beside the policy."""
    cluster: ClusterArgs
    """How many workers."""
    debug: DebugArgs
    """Which half of a run is left out."""
    alarms: AlarmArgs
    """From when on a run says that something goes wrong."""
    run: RunArgs
    """Run folder, model and seed."""
    roles: Mapping[str, RoleTable]
    """Selections by role."""
    plugins: PluginSet
    """Which plugins are loaded."""
    finetunes: bool
    """Whether it is a finetuning on responses that are given: nothing scores, and its loss reads no advantages."""
    missing_model: Path | None = None
    """The directory that `hf_checkpoint` names, where it is gone and `run.hf_checkpoint` is a checkpoint's model."""

    def to_dict(self) -> dict[str, Json]:
        """The configuration as a run file's keys, defaults written out."""
        flat: dict[str, Json] = {}
        for family in FAMILIES:
            flat.update(getattr(self, family).model_dump(mode="json", exclude_none=True))
        if self.missing_model is not None:
            flat["hf_checkpoint"] = str(self.missing_model)
        for role, chosen in self.roles.items():
            table: dict[str, Json] = {"use": dict(chosen.use)}
            table.update({name: dict(section) for name, section in chosen.sections.items()})
            flat[role] = table
        if plugins := plugins_table(self.plugins):
            flat[TABLE] = plugins
        return flat


def default_settings() -> dict[str, Json]:
    """What every key is that a run file does not name, those without a default left out."""
    flat: dict[str, Json] = {}
    for family in FAMILIES.values():
        flat.update(family.model_construct().model_dump(mode="json", exclude_none=True, warnings=False))
    return flat | {role: {"use": dict(use)} for role, use in DEFAULT_USE.items()}
