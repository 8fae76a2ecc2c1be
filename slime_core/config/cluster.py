"""Keys of how many workers train and generate, under slime's names; on a CPU a worker is a process instead of a GPU.

Example:

    actor_num_nodes = 1
    actor_num_gpus_per_node = 2          # two ranks: trainer.local.ranks = 2
    rollout_num_gpus = 4
    rollout_num_gpus_per_engine = 2      # two engines of two workers: engine.local.workers = 2
"""

from pydantic import Field

from slime_core.config.family import Family
from slime_core.roles import Workers


class ClusterArgs(Family):
    """Workers."""

    actor_num_nodes: Workers | None = Field(
        None, description="Nodes that train; times actor_num_gpus_per_node, the trainer's ranks; default 1."
    )
    actor_num_gpus_per_node: Workers | None = Field(
        None, description="Ranks on each of them, one a GPU, or a process on a CPU; default: the trainer's own setting."
    )
    rollout_num_gpus: Workers | None = Field(
        None, description="Workers of all engines, one a GPU, or a process on a CPU; instead of rollout_num_engines."
    )
    rollout_num_gpus_per_engine: Workers | None = Field(
        None, description="Workers of one engine; default 1 with rollout_num_gpus, else the engine's own setting."
    )
    colocate: bool = Field(
        False,
        description="Engines live on the trainer's devices: they take turns, and whoever waits gives up memory.",
    )
    offload_train: bool | None = Field(
        None, description="Ranks give up what memory they can while engines generate; default: as colocate."
    )
    offload_rollout: bool | None = Field(
        None, description="Engines give up what memory they can while ranks train; default: as colocate."
    )

    @property
    def offloads_train(self) -> bool:
        """Whether ranks give memory up."""
        return self.colocate if self.offload_train is None else self.offload_train

    @property
    def offloads_rollout(self) -> bool:
        """Whether engines give memory up."""
        return self.colocate if self.offload_rollout is None else self.offload_rollout
