"""Run files: TOML or YAML in, TOML out, and the command line's overrides on top.

Example:

    values = merge(read_run_file(Path("run.toml")), {"lr": 1e-5, "reward": {"use": {"math": 1.0}}})
"""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from slime_core.config.plain_values import MAX_DEPTH, refuse_unfit
from slime_core.config.yaml_file import SUFFIXES as YAML_SUFFIXES
from slime_core.config.yaml_file import read_yaml
from slime_core.errors import ConfigError, shortened
from slime_core.sample import Json

RUN_FILES = (".toml", *YAML_SUFFIXES)
"""What the names of run files end in."""
MAX_BYTES = 256 * 1024
"""Of a run file; ruamel.yaml reads about 100 KiB a second."""
_LONG_INTEGER = "an integer has over 4300 digits; at most 64 bits are allowed"
_STRING_OR_COMMENT = re.compile(
    r'''"""(?:[^"\\]|\\.|"(?!""))*+(?:"""|\Z)|'{3}.*?(?:'{3}|\Z)|"(?:[^"\\\n]|\\[^\n])*+"?|'[^'\n]*+'?|#[^\n]*+''',
    re.DOTALL,
)
_BETWEEN_KEYS = re.compile(r"[=\[\]{},]")
_UNKNOWN = re.compile(r"^unknown (?:key|setting) '?(?:(?:[\w-]+|\"[^\"]*\")\.)*([\w-]+)")


def read_run_file(path: Path) -> dict[str, Json]:
    """The keys of a run file: YAML where its name ends so, else TOML.

    Raises:
        ConfigError: no such file, not a file, over `MAX_BYTES`, not TOML or YAML (with its line), or a value that no
            key takes.
    """
    kind, parse = ("YAML", read_yaml) if path.suffix in YAML_SUFFIXES else ("TOML", _read_toml)
    try:
        values = parse(_read_text(path), path)
    except ConfigError:
        raise
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply: at most {MAX_DEPTH} tables and lists in each other") from None
    except Exception as error:  # the parsers raise more than their own types, for example ValueError for a long integer
        said = _LONG_INTEGER if "int_max_str_digits" in str(error) else shortened(" ".join(str(error).split()))
        raise ConfigError(f"{path} is not a {kind} file: {said}") from None
    refuse_unfit(values, str(path))
    return values


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)  # a device or a pipe has no size to look at
    except FileNotFoundError:
        found = (
            [each for suffix in RUN_FILES for each in path.parent.glob(f"*{suffix}")] if path.parent.is_dir() else []
        )
        there = ", ".join(sorted(each.name for each in found))
        hint = f" {path.parent} has {there}." if there else ""
        raise ConfigError(f"no run file {path}.{hint}") from None
    except OSError as error:
        raise ConfigError(f"cannot read run file {path}: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise ConfigError(
            f"{path} has over {MAX_BYTES // 1024} KiB, more than a run file may have: name the run's own file; prompts "
            "belong in prompt_data"
        )
    return content.decode("utf-8-sig").replace("\r\n", "\n")  # some editors begin with a byte order mark


def _read_toml(text: str, path: Path) -> dict[str, Json]:
    """TOML's keys; a long dotted key is refused first, because tomllib takes the square of its length."""
    for number, line in enumerate(_STRING_OR_COMMENT.sub(_line_breaks, text).split("\n"), 1):
        if any(key.count(".") > MAX_DEPTH for key in _BETWEEN_KEYS.split(line)):
            raise ConfigError(f"{path}, line {number}: a dotted key has over {MAX_DEPTH} parts, which no key has")
    return tomllib.loads(text)


def _line_breaks(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def say_lines(message: str, path: Path) -> str:
    """A message about keys with the line of each that is unknown in front.

    Args:
        message: a sentence a line, as `parse_config` says them.
        path: the run file.
    """
    if not any(map(_UNKNOWN.match, message.splitlines())):
        return message  # the file may be none that can be read
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    return "\n".join(_with_line(each, lines, path) for each in message.splitlines())


def _with_line(sentence: str, lines: list[str], path: Path) -> str:
    match = _UNKNOWN.match(sentence)
    if not match:
        return sentence
    key = re.compile(rf"""(?:^|[\s{{,])["']?{re.escape(match[1])}["']?\s*[:=]""")
    at = [number for number, line in enumerate(lines, 1) if key.search(line.partition("#")[0])]
    return f"{path}, line {at[0]}: {sentence}" if len(at) == 1 else sentence


def merge(base: Mapping[str, Json], over: Mapping[str, Json]) -> dict[str, Json]:
    """`base` with `over` on top: tables merge key by key, but a `use` is replaced whole."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if key != "use" and isinstance(value, dict) and isinstance(below, dict):
            merged[key] = merge(below, value)
        else:
            merged[key] = value
    return merged


def write_toml(values: Mapping[str, Json]) -> str:
    """TOML text of a configuration; None is left out, keys are sorted with plain values before tables.

    Raises:
        ConfigError: a null in a list, or text that is not Unicode, which TOML cannot hold.
    """
    text = "\n".join(_table(values, ())).strip() + "\n"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"a value is not Unicode text: {error.object[: error.end][-40:]!r}") from None
    return text


def _table(values: Mapping[str, Json], path: tuple[str, ...]) -> list[str]:
    lines: list[str] = []
    tables = {key: value for key, value in values.items() if isinstance(value, dict) and _is_section(path, key)}
    plain = {key: value for key, value in values.items() if key not in tables and value is not None}
    if path and (plain or not tables):
        lines += ["", f"[{'.'.join(map(toml_key, path))}]"]
    lines += [f"{toml_key(key)} = {_value(value)}" for key, value in sorted(plain.items())]
    for key, table in sorted(tables.items()):
        lines += _table(table, (*path, key))
    return lines


def _is_section(path: tuple[str, ...], key: str) -> bool:
    """A role's table and the named sections in it; deeper mappings, and `use`, are written inline."""
    return key != "use" and (
        len(path) == 1 or (not path and key not in ("eval_prompt_data", "apply_chat_template_kwargs"))
    )


def toml_key(key: str) -> str:
    """A key as TOML spells it: quoted where it must be."""
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else _string(key)


def _string(text: str) -> str:
    # JSON's strings are TOML's, but for one character that TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Json) -> str:
    match value:
        case dict():
            given = {key: each for key, each in value.items() if each is not None}
            return "{" + ", ".join(f"{toml_key(key)} = {_value(each)}" for key, each in given.items()) + "}"
        case list():
            return "[" + ", ".join(map(_value, value)) + "]"
        case str():
            return _string(value)
        case None:
            raise ConfigError("a list holds null, which a run file cannot: leave it out")
        case float():
            return repr(value)  # also inf and nan, by TOML's names
        case _:
            return json.dumps(value)
