"""slime's data sources, as base classes of user code; the core reads the rows with the run's settings.

Example:

    class Curriculum(RolloutDataSourceWithBuffer):
        def get_samples(self, num_samples):
            return sorted(super().get_samples(num_samples), key=lambda group: len(group[0].prompt))
"""

import abc
import asyncio
import copy
import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

from slime_compat.function import Arguments, load
from slime_compat.slime_api.functions import Sample
from slime_core.roles import DataSource as CoreSource
from slime_core.roles import DataSourceSetup
from slime_core.sample import Json

Groups = list[list[Sample]]
"""A list of samples for each prompt."""
BufferFilter = Callable[[object, None, Groups, int], Groups]
"""`f(args, None, buffer, n)`, which removes the groups that it returns from the buffer."""


class DataSource(abc.ABC):
    """slime's interface of a data source."""

    @abc.abstractmethod
    def get_samples(self, num_samples: int) -> Groups:
        """Return `num_samples` groups of pending samples."""

    @abc.abstractmethod
    def add_samples(self, samples: Groups) -> None:
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


class Dataset:
    """The run's prompts, in the order of an epoch."""

    def __init__(self, setup: DataSourceSetup) -> None:
        """Read all prompt files, as the core's own source does.

        Raises:
            DataError: a file cannot be read, or has no usable row.
        """
        source = cast("CoreSource", setup.make("data_source", "prompts"))
        with ThreadPoolExecutor(1) as thread:  # the current thread may run an event loop
            groups = thread.submit(asyncio.run, source.draw(len(source))).result()
        self.origin_samples = [Sample.of(group.samples[0]) for group in groups]
        self.samples = self.origin_samples
        self.seed, self.epoch_id = setup.seed, -1

    def shuffle(self, new_epoch_id: int) -> None:
        """Set the order of an epoch, which depends only on the seed and the epoch."""
        if self.epoch_id != new_epoch_id:
            self.samples = random.Random(self.seed + new_epoch_id).sample(self.origin_samples, len(self))
            self.epoch_id = new_epoch_id

    def __getitem__(self, index: int) -> Sample:
        """A prompt of the epoch."""
        return self.samples[index]

    def __len__(self) -> int:
        """Prompts."""
        return len(self.samples)


class RolloutDataSource(DataSource):
    """Rows of prompt_data, epoch after epoch; empty samples without prompt_data."""

    def __init__(self, args: Arguments) -> None:
        """Read the prompts."""
        self.args = args
        self.epoch_id = self.sample_group_index = self.sample_index = self.sample_offset = 0
        self.metadata: dict[str, Json] = {}
        setup = cast("DataSourceSetup | None", args.source_setup)
        self.dataset = Dataset(setup) if setup is not None and setup.prompts else None
        self._order()

    def get_samples(self, num_samples: int) -> Groups:
        """The next prompts, each `args.n_samples_per_prompt` times; starts a new epoch when one ends."""
        groups: Groups = []
        for _ in range(num_samples):
            first, group = self._next(), list[Sample]()
            for _ in range(cast(int, self.args.n_samples_per_prompt)):
                sample = copy.deepcopy(first)
                sample.group_index, sample.index = self.sample_group_index, self.sample_index
                self.sample_index += 1
                group.append(sample)
            self.sample_group_index += 1
            groups.append(group)
        return groups

    def _next(self) -> Sample:
        if self.dataset is None:
            return Sample()
        if self.sample_offset == len(self.dataset):
            self.epoch_id += 1
            self.sample_offset = 0
            self._order()
        self.sample_offset += 1
        return self.dataset[self.sample_offset - 1]

    def _order(self) -> None:
        if self.dataset is not None and self.args.rollout_shuffle:
            self.dataset.shuffle(self.epoch_id)

    def add_samples(self, samples: Groups) -> None:
        """Refuse returned groups.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(f"Cannot add samples to {type(self).__name__}. This is a read-only data source.")

    def save(self, rollout_id: int) -> None:
        """Write the position as JSON; slime writes a pickle."""
        path = self._state(self.args.save, rollout_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self._position()), "utf-8")

    def load(self, rollout_id: int | None = None) -> None:
        """Continue from a saved position."""
        path = self._state(self.args.load, rollout_id)
        if path.exists():
            for name, value in json.loads(path.read_text("utf-8")).items():
                setattr(self, name, value)
            self._order()

    def _position(self) -> dict[str, Json]:
        names = ("sample_offset", "epoch_id", "sample_group_index", "sample_index", "metadata")
        return {name: getattr(self, name) for name in names}

    def _state(self, folder: object, rollout_id: int | None) -> Path:
        return Path(str(folder)) / "rollout" / f"global_dataset_state_dict_{rollout_id}.json"

    def __len__(self) -> int:
        """Number of prompts per epoch."""
        return 0 if self.dataset is None else len(self.dataset)


class RolloutDataSourceWithBuffer(RolloutDataSource):
    """A data source that returns added groups first; unlike slime's, its saved state includes them."""

    def __init__(self, args: Arguments) -> None:
        """Read the prompts and load the function at `args.buffer_filter_path`."""
        super().__init__(args)
        self.buffer: Groups = []
        path = getattr(args, "buffer_filter_path", None)
        names = ("args", "rollout_id", "buffer", "num_samples")
        self.buffer_filter = cast(BufferFilter, pop_first if path is None else load(str(path), names, is_async=False))

    def get_samples(self, num_samples: int) -> Groups:
        """Groups of the buffer, then new ones."""
        samples = self.buffer_filter(self.args, None, self.buffer, num_samples) if self.buffer and num_samples else []
        return samples + super().get_samples(num_samples - len(samples))

    def add_samples(self, samples: Groups) -> None:
        """Take groups back.

        Raises:
            ValueError: a group does not have `args.n_samples_per_prompt` samples.
        """
        for group in samples:
            if len(group) != self.args.n_samples_per_prompt:
                raise ValueError(f"{group!r:.80} is not a group of {self.args.n_samples_per_prompt} samples")
            self.buffer.append(group)

    def get_buffer_length(self) -> int:
        """Groups in the buffer."""
        return len(self.buffer)

    def update_metadata(self, metadata: dict[str, Json]) -> None:
        """Add entries to the metadata, which the state includes."""
        self.metadata.update(metadata)

    def get_metadata(self) -> dict[str, Json]:
        """The metadata."""
        return self.metadata

    def _position(self) -> dict[str, Json]:
        return {**super()._position(), "buffer": [[sample.to_dict() for sample in group] for group in self.buffer]}

    def load(self, rollout_id: int | None = None) -> None:
        """Continue from a saved position and buffer."""
        super().load(rollout_id)
        self.buffer = [[_sample(item) for item in group] for group in self.buffer]


def pop_first(args: object, rollout_id: None, buffer: Groups, num_samples: int) -> Groups:
    """Remove the oldest groups from the buffer and return them."""
    oldest = buffer[:num_samples]
    del buffer[:num_samples]
    return oldest


def _sample(item: Sample | dict[str, Json]) -> Sample:
    return item if isinstance(item, Sample) else cast(Sample, Sample.from_dict(item))
