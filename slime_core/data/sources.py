"""The data sources of the core that read files or rows: `prompts`, `mixture`, and one for rows that lie in memory.

Example:

    [data_source.mixture.sources]               # with [data_source] use = "mixture"
    math = { path = "math.jsonl", weight = 3.0, label_key = "answer" }
    code = { path = ["code-a.parquet", "code-b.parquet"] }
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slime_core.data.prompt_table import PromptTable, part_of, part_of_rows
from slime_core.data.prompts import PromptSource, group_of
from slime_core.data.settings import MixtureMember, MixtureSettings
from slime_core.data.streams import FileStream
from slime_core.errors import ConfigError
from slime_core.roles import DataSourceSetup, PromptFile, Tokenizer
from slime_core.sample import Group, Json


def prompt_source(setup: DataSourceSetup) -> PromptSource:
    """The rows of the run's prompt files, all in one epoch.

    Raises:
        ConfigError: no prompt file was given.
        DataError: one cannot be read, or has no usable row.
    """
    if not setup.prompts:
        raise ConfigError("the data source 'prompts' reads files: give --prompt-data FILE (.jsonl or .parquet)")
    name = ", ".join(file.name for file in setup.prompts)
    return PromptSource(setup, [_stream(name, setup.prompts, setup)])


def row_source(rows: Iterable[Mapping[str, Json]], name: str, setup: DataSourceSetup) -> PromptSource:
    """Rows that lie in memory, or in an HF `Dataset`, as a data source: for factories of plugins.

    Args:
        rows: read once, in `setup.row_format`.
        name: the first part of every group's identity.
        setup: the run's.

    Raises:
        DataError: rows are bad, or none is usable.
    """
    table = PromptTable([part_of_rows(name, rows, setup.row_format, setup.tokenizer)])
    return PromptSource(setup, [FileStream(name, table, setup.seed, shuffle=setup.shuffle)])


@dataclass(frozen=True, slots=True)
class EveryPrompt:
    """A whole prompt file, for evaluation."""

    groups: Sequence[Group]
    """Each prompt once, in file order, numbered as its row."""
    named: Mapping[tuple[str, str], str]
    """Rewards and generators that rows choose, and the first row of each."""
    notes: Sequence[str]
    """A sentence about each kind of row that was left out."""


def every_prompt(file: PromptFile, tokenizer: Tokenizer, n_samples_per_prompt: int) -> EveryPrompt:
    """Read a prompt file for evaluation.

    Raises:
        DataError: it cannot be read, or has no usable row.
    """
    table = PromptTable([part_of(file, tokenizer)])
    stream = FileStream(file.name, table, seed=0, shuffle=False)
    taken = [stream.taken(number) for number in range(len(table))]
    kwargs = file.apply_chat_template_kwargs or {}
    groups = [group_of(each, each.row, each.row * n_samples_per_prompt, n_samples_per_prompt, kwargs) for each in taken]
    return EveryPrompt(groups, table.named, stream.data_notes())


def name_files(paths: Sequence[str]) -> list[tuple[Path, str]]:
    """Paths with names that tell them apart: the last part, or as many as it takes.

    Raises:
        ConfigError: one is given twice.
    """
    if twice := sorted({path for path in paths if paths.count(path) > 1}):
        raise ConfigError(f"{', '.join(twice)}: given twice; a mixture gives weights ([data_source] use = 'mixture')")
    named = []
    for path in map(Path, paths):
        others = [Path(other) for other in paths if Path(other) != path]
        depth = 1
        while any(other.parts[-depth:] == path.parts[-depth:] for other in others):
            depth += 1
        named.append((path, "/".join(path.parts[-depth:])))
    return named


def _stream(name: str, files: Sequence[PromptFile], setup: DataSourceSetup) -> FileStream:
    table = PromptTable([part_of(file, setup.tokenizer) for file in files])
    return FileStream(name, table, setup.seed, shuffle=setup.shuffle)


def mixture_source(settings: MixtureSettings, setup: DataSourceSetup) -> PromptSource:
    """Several data sets, each with epochs of its own, drawn from by weight.

    Raises:
        DataError: a file cannot be read, or has no usable row.
    """
    members = settings.sources.items()
    streams = [_stream(name, _member_files(name, member, setup), setup) for name, member in members]
    return PromptSource(setup, streams, [member.weight for _, member in members])


def _member_files(name: str, member: MixtureMember, setup: DataSourceSetup) -> list[PromptFile]:
    """A member's prompt files, under its name."""
    row_format = member.row_format(setup.row_format)
    if isinstance(member.path, str):
        return [PromptFile.of(Path(member.path), name, row_format)]
    return [PromptFile.of(path, f"{name}/{file}", row_format) for path, file in name_files(member.path)]
