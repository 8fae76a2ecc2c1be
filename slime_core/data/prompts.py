"""PromptSource: the default data source: the rows of a prompt file, epoch after epoch, from exact state.

Everything it draws is a function of (seed, file, number of the draw), so its state is four numbers and the groups
that came back.

Example:

    source = PromptSource(setup)
    groups = await source.draw(64)
"""

import random
from collections.abc import Mapping, Sequence
from typing import cast

from slime_core.data.prompt_file import Prompt, read_prompts
from slime_core.errors import CheckpointError, ConfigError
from slime_core.roles import DataSourceSetup
from slime_core.sample import Group, GroupId, Json, Sample
from slime_core.seeds import derive_seed


class PromptSource:
    """Implements `slime_core.roles.DataSource`."""

    def __init__(self, setup: DataSourceSetup) -> None:
        """Read the file.

        Raises:
            ConfigError: no prompt file was given.
            DataError: it cannot be read, or no prompt is short enough.
        """
        if setup.prompts is None:
            raise ConfigError("the data source 'prompts' reads a file: give --prompt-data FILE (.jsonl or .parquet)")
        self._setup = setup
        self._file = setup.prompts
        self._set = read_prompts(setup.prompts, setup.tokenizer)
        self._epoch, self._offset, self._draws = 0, 0, 0
        self._requeued: list[Group] = []
        self._order = self._order_of(0)

    @property
    def left_out(self) -> int:
        """Rows left out because their prompt is longer than `max_prompt_len`."""
        return self._set.left_out

    async def draw(self, count: int) -> list[Group]:
        """Exactly `count` groups: those that came back first, oldest first, then new ones."""
        groups, self._requeued = self._requeued[:count], self._requeued[count:]
        while len(groups) < count:
            groups.append(self._next())
        return groups

    def add(self, groups: Sequence[Group]) -> None:
        """Take back groups that were drawn and not finished."""
        self._requeued.extend(groups)

    def every_prompt(self) -> list[Group]:
        """Each prompt once, in file order, numbered as its row: for evaluation. The source's own state stays."""
        return [self._group(prompt, epoch=0, draw=prompt.row) for prompt in self._set.prompts]

    def named_choices(self) -> Mapping[tuple[str, str], str]:
        """Rewards and generators that rows choose in their metadata, and the first row of each."""
        return self._set.named

    def state_dict(self) -> dict[str, Json]:
        """Position, requeued groups, and what they are a position in."""
        return {
            "of": self._identity(),
            "epoch": self._epoch,
            "offset": self._offset,
            "draws": self._draws,
            "requeued": [group.to_dict() for group in self._requeued],
        }

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue from a saved state.

        Raises:
            CheckpointError: the state is of other prompts, another seed or another group size.
        """
        saved, mine = cast(Mapping[str, Json], state.get("of", {})), self._identity()
        changed = [f"{key}: {saved.get(key)} -> {value}" for key, value in mine.items() if saved.get(key) != value]
        if changed:
            raise CheckpointError(
                f"the saved position is not one in {self._file.path}: {'; '.join(changed)}. Continue with the same "
                "prompts and settings, or start a new run with another --save"
            )
        self._epoch, self._offset = cast(int, state["epoch"]), cast(int, state["offset"])
        self._draws = cast(int, state["draws"])
        self._requeued = [Group.from_dict(each) for each in cast(list[Mapping[str, Json]], state["requeued"])]
        self._order = self._order_of(self._epoch)

    def __len__(self) -> int:
        """Prompts in one epoch, without those left out."""
        return len(self._set.prompts)

    def _identity(self) -> dict[str, Json]:
        return {
            "name": self._file.name,
            "prompts": len(self),
            "digest": self._set.digest,
            "seed": self._setup.seed,
            "shuffle": self._setup.shuffle,
            "n_samples_per_prompt": self._setup.n_samples_per_prompt,
        }

    def _next(self) -> Group:
        if self._offset == len(self):
            self._epoch, self._offset = self._epoch + 1, 0
            self._order = self._order_of(self._epoch)
        prompt = self._set.prompts[self._order[self._offset]]
        group = self._group(prompt, self._epoch, self._draws)
        self._offset += 1
        self._draws += 1
        return group

    def _order_of(self, epoch: int) -> Sequence[int]:
        """The epoch's order of prompts: sorted by random keys, which every Python version draws alike."""
        positions = range(len(self))
        if not self._setup.shuffle:
            return positions
        generator = random.Random(derive_seed(self._setup.seed, self._file.name, "shuffle", epoch))
        keys = [generator.random() for _ in positions]
        return sorted(positions, key=keys.__getitem__)

    def _group(self, prompt: Prompt, epoch: int, draw: int) -> Group:
        size = self._setup.n_samples_per_prompt
        samples = [
            Sample(
                group_index=draw,
                index=index,
                rollout_id=draw * size + index,
                prompt=prompt.prompt,
                label=prompt.label,
                metadata=dict(prompt.metadata),
                custom_rm_path=prompt.named("custom_rm_path"),
                generate_function_path=prompt.named("generate_function_path"),
                apply_chat_template_kwargs=dict(self._file.apply_chat_template_kwargs or {}),
                source=self._file.name,
            )
            for index in range(size)
        ]
        return Group(GroupId(self._file.name, epoch, prompt.row, draw), samples)
