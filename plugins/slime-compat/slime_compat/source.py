"""SlimeDataSource: adapts a class for `--data-source-path`; its state is stored in the run's checkpoints.

slime's sources write files below `args.save` and read them below `args.load`. Here both are a temporary directory, and
checkpoints contain its files.
"""

import base64
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from slime_compat.function import Arguments, load
from slime_compat.settings import FunctionSettings
from slime_compat.slime_api.data_source import DataSource
from slime_compat.slime_api.functions import to_core
from slime_core import Group, GroupId, Sample
from slime_core.errors import ContractError
from slime_core.roles import DataSourceSetup
from slime_core.sample import Json

ROW_KEYS = (
    "input_key", "label_key", "metadata_key", "tool_key", "multimodal_keys", "apply_chat_template",
    "apply_chat_template_kwargs",
)  # fmt: skip
"""Row keys with the same name in slime."""
SLOT = 0
"""The fixed rollout number of the saved state; a checkpoint has one state."""


def _known_arguments(setup: DataSourceSetup) -> dict[str, object]:
    rows = setup.row_format
    return {
        "n_samples_per_prompt": setup.n_samples_per_prompt,
        "rollout_seed": setup.seed,
        "rollout_shuffle": setup.shuffle,
        "prompt_data": str(setup.prompts[0].path) if setup.prompts else None,
        "rollout_max_prompt_len": rows.max_prompt_len,
        "buffer_filter_path": None,
        **{name: getattr(rows, name) for name in ROW_KEYS},
    }


class SlimeDataSource:
    """A data source around a class written for slime."""

    def __init__(self, settings: FunctionSettings, setup: DataSourceSetup) -> None:
        """Build the class with `args`.

        Raises:
            PluginError: the class cannot be built with one argument, as slime does.
        """
        self._path = settings.path
        build = load(settings.path, ("args",), is_async=None)
        folder = tempfile.mkdtemp(prefix="slime-compat-")
        # This role has no `close`, so the directory is deleted with the object or at exit.
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._scratch = Path(folder)
        places = {"save": folder, "load": folder, "rollout_global_dataset": True, "source_setup": setup}
        self._args = Arguments({**_known_arguments(setup), **settings.args, **places}, "data_source.source")
        self._source = cast(DataSource, build(self._args))
        self._drawn = 0
        self._returned: list[Group] = []

    async def draw(self, count: int) -> list[Group]:
        """Groups that were given back first, then new groups of the source.

        Raises:
            ContractError: the source returned too few groups, or values that are not groups of samples.
        """
        first, self._returned = self._returned[:count], self._returned[count:]
        missing = count - len(first)
        return first + (self._groups(missing) if missing else [])

    def _groups(self, count: int) -> list[Group]:
        drawn: object = self._source.get_samples(count)
        if not isinstance(drawn, list) or len(drawn) != count:
            found = f"{len(drawn)} groups" if isinstance(drawn, list) else f"a {type(drawn).__name__}"
            raise ContractError(f"{self._path}.get_samples({count}) returned {found}; return a list of {count} groups")
        return [self._group(samples) for samples in drawn]

    def _group(self, samples: Sequence[object]) -> Group:
        if not samples or not all(isinstance(sample, Sample) for sample in samples):
            raise ContractError(f"{self._path}.get_samples must return non-empty lists of slime's Sample")
        number, self._drawn = self._drawn, self._drawn + 1
        converted = [to_core(sample) for sample in samples if isinstance(sample, Sample)]
        for index, sample in enumerate(converted):
            sample.group_index, sample.index = number, index
            sample.rollout_id = number * len(converted) + index
        return Group(GroupId(self._path, 0, number, number), converted)

    def add(self, groups: Sequence[Group]) -> None:
        """Keep groups for the next draw; slime's own `add_samples` would lose their identity."""
        self._returned.extend(groups)

    def state_dict(self) -> dict[str, Json]:
        """The source's files, and the drawn and returned groups."""
        self._source.save(SLOT)
        folder = self._scratch
        files: dict[str, Json] = {
            str(path.relative_to(folder)): base64.b64encode(path.read_bytes()).decode()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        return {"files": files, "drawn": self._drawn, "returned": [group.to_dict() for group in self._returned]}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Restore the files and let the source read them."""
        for name, content in cast("dict[str, str]", state["files"]).items():
            path = self._scratch / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(content))
        self._drawn = cast(int, state["drawn"])
        self._returned = [Group.from_dict(each) for each in cast("list[dict[str, Json]]", state["returned"])]
        self._source.load(SLOT)

    def __len__(self) -> int:
        """Number of prompts per epoch."""
        return len(self._source)
