"""PromptSet: a prompt file, read and checked once: prompt, label and metadata of each row.

Example:

    prompts = read_prompts(PromptFile(Path("train.jsonl"), name="train.jsonl"), tokenizer)
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from slime_core.data.rows import Row, read_rows
from slime_core.errors import DataError
from slime_core.roles import PromptFile, Tokenizer
from slime_core.sample import Json, Message


NAMING = {"rm_type": "reward", "custom_rm_path": "reward", "generate_function_path": "generator"}
"""Keys of a row's metadata that name a choice for its samples, in slime's words, and the role of each."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One usable row."""

    row: int
    """Its number in the file or slice, from 0."""
    prompt: str | list[Message]
    """Text, or messages that were not rendered."""
    label: Json = None
    """The gold answer."""
    metadata: dict[str, Json] = field(default_factory=dict)
    """The row's metadata; tool definitions are its "tools"."""

    def named(self, key: str) -> str | None:
        """The choice that the row names in its metadata, by one of `NAMING`."""
        return cast("str | None", self.metadata.get(key))


@dataclass(frozen=True, slots=True)
class PromptSet:
    """What a prompt file holds."""

    prompts: Sequence[Prompt]
    """At least one."""
    left_out: int
    """Rows whose prompt is longer than `max_prompt_len`."""
    digest: str
    """Hash of all prompts, labels and metadata: two sets with one digest are the same data."""
    named: Mapping[tuple[str, str], str]
    """Where each role and name that rows choose is named first."""


def read_prompts(file: PromptFile, tokenizer: Tokenizer) -> PromptSet:
    """Read and check every row.

    Raises:
        DataError: see `read_rows`; or a key is missing, a value is of the wrong type, or no row is left.
        ModelError: a chat template is wanted and the model has none.
    """
    digest = hashlib.blake2b(digest_size=16)
    prompts: list[Prompt] = []
    named: dict[tuple[str, str], str] = {}
    number, shortest = -1, None
    for number, row in enumerate(read_rows(file.path)):
        prompt = _read(file, tokenizer, number, row)
        if file.max_prompt_len is not None:
            length = len(tokenizer.encode(_text(file, tokenizer, prompt)))
            if length > file.max_prompt_len:
                shortest = length if shortest is None else min(length, shortest)
                continue
        for key, role in NAMING.items():
            if (name := prompt.named(key)) is not None:
                named.setdefault((role, name), f"{row.where}: {file.metadata_key}.{key}")
        digest.update(_dump(row.where, [prompt.row, prompt.prompt, prompt.label, prompt.metadata]))
        prompts.append(prompt)
    if number < 0:
        raise DataError(f"{file.path} holds no rows")
    if not prompts:
        raise DataError(
            f"{file.path}: all {number + 1} prompts are longer than {file.max_prompt_len} tokens, the shortest has "
            f"{shortest}: raise --rollout-max-prompt-len"
        )
    return PromptSet(prompts, number + 1 - len(prompts), digest.hexdigest(), named)


def _read(file: PromptFile, tokenizer: Tokenizer, number: int, row: Row) -> Prompt:
    metadata = _metadata(file, row)
    label = _column(row, file.label_key, "--label-key") if file.label_key is not None else None
    prompt = _checked(row, file, _column(row, file.input_key, "--input-key"))
    if file.apply_chat_template:
        messages: list[Message] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        try:
            prompt = tokenizer.apply_chat_template(messages, metadata.get("tools"), file.apply_chat_template_kwargs)
        except DataError as error:
            raise DataError(f"{row.where}: {error}") from None
    return Prompt(number, prompt, label, metadata)


def _column(row: Row, key: str, flag: str) -> Json:
    if key not in row.values:
        keys = ", ".join(row.values) or "no keys at all"
        raise DataError(f"{row.where}: no key {key!r}; the row has {keys}: give {flag} one of these")
    return row.values[key]


def _checked(row: Row, file: PromptFile, value: Json) -> str | list[Message]:
    """A prompt of one of the two accepted shapes."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list) and value:
        if all(isinstance(each, dict) and isinstance(each.get("role"), str) for each in value):
            return cast(list[Message], value)
        raise DataError(
            f'{row.where}: {file.input_key!r} is a list, but not of messages {{"role": ..., "content": ...}}'
        )
    got = "nothing" if value in ("", [], None) else type(value).__name__
    raise DataError(f"{row.where}: {file.input_key!r} must be a text or a list of chat messages, got {got}")


def _metadata(file: PromptFile, row: Row) -> dict[str, Json]:
    given = row.values.get(file.metadata_key)
    if given is not None and not isinstance(given, dict):
        raise DataError(f"{row.where}: {file.metadata_key!r} must be an object, got {type(given).__name__}")
    metadata = dict(given or {})
    for key in NAMING:
        if not isinstance(name := metadata.get(key), str | None):
            raise DataError(f"{row.where}: {file.metadata_key}.{key} must be a name, got {type(name).__name__}")
    tools = row.values.get(file.tool_key)
    if isinstance(tools, str):  # columns of a parquet file cannot hold objects of different shapes
        try:
            tools = json.loads(tools)
        except ValueError as error:
            raise DataError(f"{row.where}: {file.tool_key!r} is a text, but not JSON: {error}") from None
    if tools is not None:
        metadata["tools"] = tools
    return metadata


def _text(file: PromptFile, tokenizer: Tokenizer, prompt: Prompt) -> str:
    if isinstance(prompt.prompt, str):
        return prompt.prompt
    return tokenizer.apply_chat_template(prompt.prompt, prompt.metadata.get("tools"), file.apply_chat_template_kwargs)


def _dump(where: str, values: list[object]) -> bytes:
    """The row as bytes; refuses what a checkpoint could not keep (dates, bytes, NaN of a parquet file)."""
    try:
        return json.dumps(values, allow_nan=False, ensure_ascii=False, sort_keys=True).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: prompt, label and metadata must be plain JSON: {error}") from None
