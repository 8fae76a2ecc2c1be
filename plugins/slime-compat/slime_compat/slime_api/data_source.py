"""The base class of slime's data sources."""

import abc

from slime_compat.slime_api.types import Sample


class DataSource(abc.ABC):
    """What slime asks of a data source; `RolloutDataSource` with slime's file reading is the core's `prompts`."""

    @abc.abstractmethod
    def get_samples(self, num_samples: int) -> list[list[Sample]]:
        """That many groups of pending samples."""

    @abc.abstractmethod
    def add_samples(self, samples: list[list[Sample]]) -> None:
        """Take groups back."""

    @abc.abstractmethod
    def save(self, rollout_id: int) -> None:
        """Write the state below `args.save`."""

    @abc.abstractmethod
    def load(self, rollout_id: int | None = None) -> None:
        """Read the state from below `args.load`."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Prompts of an epoch."""
