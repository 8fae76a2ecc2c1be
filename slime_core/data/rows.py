"""Reads the rows of prompt files, and the chat messages in them.

Files are .jsonl or .parquet, or a slice of one. They are read as a stream, so memory does not grow with the file. A
bad row becomes a `BadRow` with file and line; only blank lines are skipped. Training, finetuning and evaluation share
one form of messages. Parquet files need pyarrow.

Example:

    split_slice(Path("train.jsonl@[100:200]"))                  # (Path("train.jsonl"), 100, 200)
    for row in jsonl_rows(Path("train.jsonl"), 100, 200):       # a Row, or a BadRow with file and line
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple, NoReturn

from slime_core.errors import DataError
from slime_core.sample import Json, Message

_SLICE = re.compile(r"(.*)@\[(-?\d*):(-?\d*)\]", re.DOTALL)
_ARRAY = "expected a JSON object, got the beginning of an array: write one object per line, without brackets"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Row(NamedTuple):
    """One row."""

    where: str
    """File and line, for errors."""
    values: dict[str, Json]
    """Values by column."""


class BadRow(NamedTuple):
    """A row that cannot be used."""

    why: str
    """File, line, and the problem."""


def split_slice(path: Path) -> tuple[Path, int | None, int | None]:
    """Split `file@[start:stop]` into the file and its bounds."""
    if (match := _SLICE.fullmatch(str(path))) is None:
        return path, None, None
    start, stop = (int(bound) if bound else None for bound in match.groups()[1:])
    return Path(match[1]), start, stop


def jsonl_rows(file: Path, start: int | None, stop: int | None) -> Iterator[Row | BadRow]:
    """Yield the rows of a slice, with Python's slice semantics; skips only blank lines."""
    if (start or 0) < 0 or (stop or 0) < 0:
        start, stop, _ = slice(start, stop).indices(sum(1 for _ in _jsonl_lines(file)))
    for number, line in islice(_jsonl_lines(file), start, stop):
        yield _parse(f"{file}:{number}", line)


def _jsonl_lines(file: Path) -> Iterator[tuple[int, bytes]]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            text = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
            if not text.isspace() and text:
                yield number, text


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _unique_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} appears twice")
    return table


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
"""One decoder for all rows: `json.loads` with arguments creates one per call, which doubles its time."""


def parse_json(text: str) -> Json:
    """Return the value of a JSON text. ValueError also for NaN, half of a surrogate pair, or a key that comes twice."""
    value: Json = _DECODER.decode(text)
    if "\\ud" in text or "\\uD" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("it holds half of a surrogate pair, which is no character") from None
    return value


def _parse(where: str, line: bytes) -> Row | BadRow:
    try:
        values = parse_json(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return BadRow(f"{where}: not UTF-8 ({error.reason} at byte {error.start} of the line)")
    except ValueError as error:
        if line.lstrip().startswith(b"["):
            return BadRow(f"{where}: {_ARRAY}")
        problem = f"not JSON: {error}" if isinstance(error, json.JSONDecodeError) else str(error)
        return BadRow(f"{where}: {problem}: {_shorten(line.decode())}")
    except RecursionError:
        return BadRow(f"{where}: nested too deeply")
    if isinstance(values, list):
        return BadRow(f"{where}: {_ARRAY}")
    if not isinstance(values, dict):
        return BadRow(f'{where}: expected a JSON object like {{"input": ...}}, got {_shorten(line.decode())}')
    return Row(where, values)


def _shorten(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 60 else f"{text[:57]}..."


ROLES = {"human": "user", "gpt": "assistant"}
"""Roles of ShareGPT files that chat templates do not know, and the roles to write instead."""
REASONING = ("reasoning_content", "reasoning", "thinking")
"""Keys from which templates read the model's reasoning."""
MEDIA = ("image", "video", "audio", "image_url", "video_url", "audio_url", "input_audio")
"""Types of parts that are not text."""
SWITCHES = re.compile("/(?:no_)?think")
"""Words in a system message that some templates act on and remove."""
_JSON_OF_MESSAGES = re.compile(r'\s*\[\s*\{\s*"(role|content)"')
TOOL_ROLES = ("tool", "function")
"""Roles of messages with the result of a tool."""


def arrow_values(row: Mapping[str, Json]) -> dict[str, Json]:
    """Return a row of an Arrow table without null keys in its objects; Arrow adds such keys if other rows have them."""

    def pruned(value: Json) -> Json:
        if isinstance(value, dict):
            return {key: pruned(each) for key, each in value.items() if each is not None}
        return [pruned(each) for each in value] if isinstance(value, list) else value

    return {name: pruned(value) for name, value in row.items()}


def read_messages(value: list[Json], key: str) -> list[Message]:
    """Return the messages of a column; the DataError for an invalid message names it, counted from 0."""
    return [_message(each, f"message {number} of {key!r}") for number, each in enumerate(value)]


def messages_in(text: str) -> list[Json] | None:
    """Return the messages in a text if it is JSON of messages, else None."""
    with suppress(ValueError):
        found = parse_json(text) if _JSON_OF_MESSAGES.match(text) else None
        if isinstance(found, list) and all(isinstance(each, dict) and "role" in each for each in found):
            return found
    return None


def read_tools(value: Json, key: str) -> list[Json] | None:
    """Return the tool definitions of a column (objects or their JSON), or None; the DataError names an invalid one."""
    value = _parsed(value, f"{key!r}") if isinstance(value, str) else value
    if not isinstance(value, list | None):
        raise DataError(f"{key!r} must be a list of tool definitions, got {_kind(value)}")
    return [_tool(each, f"tool {number} of {key!r}") for number, each in enumerate(value)] if value else None


def visible(message: Message) -> list[str]:
    """Return the visible texts of a message: its content, and names and arguments of tool calls; no reasoning."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in parts]
    if message["role"] == "assistant" and "</think>" in texts[0]:
        texts[0] = texts[0].rpartition("</think>")[2]
    if message["role"] == "system":
        texts = [piece for text in texts for piece in SWITCHES.split(text)]
    for call in calls_of(message):
        texts += [str(call["name"]), *_leaves(call.get("arguments"))]
    return texts


def refuse_media(messages: Sequence[Message]) -> None:
    """Check that all parts of all messages are text: templates would render a description of other media."""
    for number, message in enumerate(messages):
        for part in content if isinstance(content := message.get("content"), list) else []:
            if _text(part) is None:
                kind = str(part.get("type", "media")) if isinstance(part, dict) else "media"
                raise DataError(
                    f"message {number} ({message['role']}) has a part of type {kind!r}, which this run cannot give to "
                    "the model: remove it, or name the column of such media in multimodal_keys for a generator that "
                    "reads them"
                )


def reasoning(message: Message) -> list[str]:
    """Return the reasoning of an assistant's message, from its keys or its `<think>` tags."""
    if message["role"] != "assistant":
        return []
    content, found = message.get("content"), [str(message.get(key, "")) for key in REASONING]
    if isinstance(content, str) and "</think>" in content:
        found += content.rpartition("</think>")[0].replace("</think>", "<think>").split("<think>")
    return found


def calls_of(message: Message) -> list[dict[str, Json]]:
    """Return name and arguments of each tool call."""
    calls = message.get("tool_calls")
    found = [call.get("function", call) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return [each for each in found if isinstance(each, dict)]


def _message(value: Json, where: str) -> Message:
    shape = '{"role": ..., "content": ...}'
    message: Message = _without_nulls(_object(value, where, shape))
    if not isinstance(role := message.get("role"), str):
        got = f"{where} must be an object {shape}, got the keys {', '.join(message) or 'of an empty object'}"
        names = " and ".join(f"{theirs} by {ours}" for theirs, ours in ROLES.items())
        hint = f". For from write role, for value content, and replace {names}" if "from" in message else ""
        raise DataError(got + hint)
    where = f"{where} ({role})"
    if role in ROLES:
        raise DataError(f"{where}: chat templates do not know this role; write {ROLES[role]!r}")
    if "function_call" in message:
        raise DataError(f"{where} has function_call, which chat templates do not read; write tool_calls")
    calls = message.pop("tool_calls", None)
    calls = _parsed(calls, f"tool_calls of {where}") if isinstance(calls, str) else calls
    if not isinstance(calls, list | None):
        raise DataError(f"tool_calls of {where} must be a list, got {_kind(calls)}")
    if calls:
        message["tool_calls"] = [_call(each, f"call {number} of {where}") for number, each in enumerate(calls)]
    message["content"] = _content(message, where)
    return message


def _content(message: Message, where: str) -> Json:
    content = message.get("content")
    is_tool = message["role"] in TOOL_ROLES
    if isinstance(content, str):
        return content
    if content in (None, []) and any(message.get(key) for key in ("tool_calls", *REASONING)):
        return ""
    if isinstance(content, list) and content and all(_is_part(part, is_tool) for part in content):
        if all(_text(part) is not None for part in content):
            return "".join(_text(part) or "" for part in content)
        return [_without_nulls(part) if isinstance(part, dict) else {"type": "text", "text": part} for part in content]
    if is_tool and isinstance(content, dict | list):
        return json.dumps(content, ensure_ascii=False)
    got = "nothing" if content is None else _kind(content)
    raise DataError(f"the content of {where} must be a text or a list of parts with text, got {got}")


def _is_part(part: Json, is_tool: bool) -> bool:
    """Whether a value is a text or media part; a tool's array of texts is its result and not a list of parts."""
    if isinstance(part, dict):
        return _text(part) is not None or part.get("type") in MEDIA or any(kind in part for kind in MEDIA)
    return isinstance(part, str) and not is_tool


def _text(part: Json) -> str | None:
    if isinstance(part, dict):
        part = part.get("text") if part.get("type") in (None, "text") else None
    return part if isinstance(part, str) else None


def _call(value: Json, where: str) -> Json:
    shape = '{"name": ..., "arguments": ...}'
    call = _without_nulls(_object(value, where, shape))
    if "function" in call:
        return {**call, "function": _call(call["function"], where)}
    if not isinstance(call.get("name"), str):
        raise DataError(f"{where} must be an object {shape}, got the keys {', '.join(call)}")
    arguments = call.get("arguments")
    return {**call, "arguments": _object(arguments, f"arguments of {where}", "") if arguments not in (None, "") else {}}


def _tool(value: Json, where: str) -> Json:
    tool = _object(value, where, "")
    parts = [key for key in ("function", "parameters") if isinstance(tool.get(key), str | dict)]
    return {**tool, **{key: _tool(tool[key], f"{key} of {where}") for key in parts}}


def _object(value: Json, where: str, shape: str) -> dict[str, Json]:
    value = _parsed(value, where) if isinstance(value, str) else value
    if not isinstance(value, dict):
        raise DataError(f"{where} must be an object {shape}".rstrip() + f", got {_kind(value)}")
    return value


def _without_nulls(value: dict[str, Json]) -> dict[str, Json]:
    return {key: each for key, each in value.items() if each is not None}


def _leaves(value: Json) -> list[str]:
    if isinstance(value, dict | list):
        return [leaf for each in (value.values() if isinstance(value, dict) else value) for leaf in _leaves(each)]
    return [] if value is None or isinstance(value, bool) else [str(value)]


def _parsed(text: str, what: str) -> Json:
    try:
        return parse_json(text)
    except ValueError as error:
        raise DataError(f"{what} is a text, but not JSON: {error}") from None


def _kind(value: Json) -> str:
    return {dict: "an object", list: "a list", str: "a text", bool: "a boolean"}.get(type(value), "a number")


BATCH_ROWS = 1024
"""Rows decoded at a time; 1,024 rows of 10 kB are 10 MB."""
_READ_BYTES = 1 << 20
"""Bytes per read of a column; the default reads whole row groups, and writers put up to 2^20 rows into one."""


def parquet_rows(
    file: Path, start: int | None, stop: int | None, needed: Collection[str], optional: Collection[str]
) -> Iterator[Row]:
    """Yield the rows of a parquet file; DataError if it is not a parquet file, or pyarrow is missing."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise DataError(f"reading {file} needs pyarrow: pip install pyarrow") from None
    try:
        with parquet.ParquetFile(file, buffer_size=_READ_BYTES, pre_buffer=False) as table:
            begin, end, _ = slice(start, stop).indices(table.metadata.num_rows)
            columns, first = _columns(table.schema_arrow.names, needed, optional), 0
            for batch in table.iter_batches(BATCH_ROWS, columns=columns):
                wanted = range(max(begin, first), min(end, first + len(batch)))
                for number, values in zip(wanted, batch.slice(max(0, begin - first)).to_pylist(), strict=False):
                    yield Row(f"{file}, row {number}", arrow_values(values))
                first += len(batch)
                if first >= end:
                    return
    except (ArrowException, OSError, ValueError, KeyError) as error:
        raise DataError(f"{file}: not a readable parquet file: {error}") from None


def _columns(names: Collection[str], needed: Collection[str], optional: Collection[str]) -> list[str] | None:
    """Return the columns to read, None for all; a dotted key needs the column before its dot."""
    needed = {each if each in names else each.partition(".")[0] for each in needed}
    if not needed or not needed <= set(names):
        return None
    wanted = {*needed, *optional}
    return [name for name in names if name in wanted]


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the rows of a file or of `file@[start:stop]`; DataError as in `scan_rows`, or for a bad row."""
    for row in scan_rows(path):
        if isinstance(row, BadRow):
            raise DataError(row.why)
        yield row


def scan_rows(path: Path, needed: Collection[str] = (), optional: Collection[str] = ()) -> Iterator[Row | BadRow]:
    """Yield the rows of a file or a slice, with a `BadRow` for each bad row.

    Args:
        path: the file or the slice.
        needed: columns to read; if one does not exist, all are read, so that an error can list them.
        optional: columns to read if they exist; without `needed`, all columns are read.

    Raises:
        DataError: the file is missing or damaged, or its suffix is unknown.
    """
    file, start, stop = split_slice(path)
    if not file.is_file():
        raise DataError(_no_file(file))
    if file.suffix == ".jsonl":
        yield from jsonl_rows(file, start, stop)
    elif file.suffix == ".parquet":
        yield from parquet_rows(file, start, stop, needed, optional)
    else:
        raise DataError(f"{file}: prompt files end in .jsonl or .parquet, not in {file.suffix or 'nothing'!r}")


def _no_file(file: Path) -> str:
    if file.exists():
        kind = "directory" if file.is_dir() else "pipe, a socket or a device"
        return f"{file} is a {kind}: give a .jsonl or .parquet file, as `to_parquet` of HF datasets writes one"
    if not file.parent.is_dir():
        return f"there is no prompt file {file}: nor is there the directory {file.parent.absolute()}"
    near = sorted(each.name for each in file.parent.iterdir() if each.suffix in (".jsonl", ".parquet"))
    return f"there is no prompt file {file}; {file.parent} holds {', '.join(near[:8]) or 'no .jsonl or .parquet file'}"
