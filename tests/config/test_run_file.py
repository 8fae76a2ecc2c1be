import math
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.config import merge, parse_config, read_run_file, write_toml
from slime_core.errors import ConfigError
from slime_core.roles import SPECS
from slime_core.sample import Json
from tests.tables import table

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALARS = st.booleans() | st.integers() | st.floats(allow_nan=False) | st.just(math.inf) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
SECTIONS = st.dictionaries(
    TEXT.filter(lambda name: name != "use"), st.dictionaries(TEXT, VALUES, max_size=3), max_size=3
)
FILES = st.fixed_dictionaries(
    {},
    optional={
        "lr": st.floats(allow_nan=False),
        "seed": st.integers(),
        "prompt_data": TEXT,
        "rollout_stop_token_ids": st.lists(st.integers()),
        "eval_prompt_data": st.dictionaries(TEXT, TEXT, max_size=3),
        "apply_chat_template_kwargs": st.dictionaries(TEXT, VALUES, max_size=3),
        **{
            role: st.builds(
                lambda use, sections: {"use": use} | sections,
                TEXT | st.dictionaries(TEXT, st.floats(allow_nan=False), max_size=2),
                SECTIONS,
            )
            for role in SPECS
        },
    },
)


@given(FILES)
def test_what_is_written_reads_back(values: dict[str, Json]) -> None:
    assert tomllib.loads(write_toml(values)) == values


@given(TEXT, TEXT)
def test_any_text_reads_back_as_key_and_value(key: str, value: str) -> None:
    assert tomllib.loads(write_toml({key: value})) == {key: value}


def test_none_is_left_out_wherever_toml_can_do_without_it() -> None:
    values: dict[str, Json] = {"a": None, "reward": {"use": {"math": 1.0}, "math": {"x": None, "y": {"z": None}}}}
    assert tomllib.loads(write_toml(values)) == {"reward": {"use": {"math": 1.0}, "math": {"y": {}}}}


@table(
    "value, complaint",
    [([1, None], "a list holds null"), ("\ud800", "not Unicode text"), ({"k": ["\udfff"]}, "not Un")],
)
def test_what_toml_cannot_hold_is_refused(value: Json, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        write_toml({"reward": {"math": {"key": value}}})


def test_a_resolved_configuration_reads_back_as_itself(tmp_path: Path) -> None:
    config = parse_config(
        {
            "hf_checkpoint": "m",
            "save": "s",
            "num_rollout": 3,
            "eval_prompt_data": {"held out": "e.jsonl"},
            "eval_interval": 1,
            "reward": {"use": ["math", "./my.py:fn"], "math": {"strict": True}},
            "loss": {"use": "sft_loss", "policy_loss": {"eps_clip": 0.1}},
        }
    )
    path = tmp_path / "run.toml"
    path.write_text(write_toml(config.to_dict()))
    assert parse_config(read_run_file(path)) == config


@table(
    "name, message",
    [
        ("frist.toml", "no run file ROOT/frist.toml. ROOT has first.toml."),
        ("nowhere/run.toml", "no run file ROOT/nowhere/run.toml."),
        (".", "cannot read run file ROOT: Is a directory"),
        ("run.yaml", "ROOT/run.yaml: a run file is TOML"),
    ],
)
def test_what_is_no_run_file_is_named(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "first.toml").touch()
    (tmp_path / "run.yaml").touch()
    with pytest.raises(ConfigError) as raised:
        read_run_file(tmp_path / name)
    assert str(raised.value).replace(str(tmp_path), "ROOT").startswith(message)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_bytes(b"\xef\xbb\xbflr = 0.5\n")
    assert read_run_file(tmp_path / "run.toml") == {"lr": 0.5}


@table("content", [b"lr = ", b"\xff\xfe", b"a = 1\na = 2"])
def test_what_is_no_toml_is_named_with_its_place(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"run.toml is not a TOML file: .*(line|position|end of document)"):
        read_run_file(path)


@table("value", ["2026-01-31", "12:30:00", "2026-01-31T12:30:00Z", "[1, [2026-01-31]]"])
def test_a_date_is_refused_with_its_key(tmp_path: Path, value: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text(f"[reward.math]\nsince = {value}")
    with pytest.raises(ConfigError, match=r"run.toml: reward.math.since is a date or time, .* write it as text"):
        read_run_file(path)


HOSTILE = {
    "a dotted key of 40 parts": (".".join("k" * 40) + " = 1", "is nested over 32 deep"),
    "a header of 100,000 parts": ("\n[" + ".".join("k" * 100_000) + "]", "line 2: over 1000 dots without a comma"),
    "a key of 100,000 parts": ("k = {" + ".".join("k" * 100_000) + " = 1}", "line 1: over 1000 dots without a comma"),
    "lists in lists": ("k = " + "[" * 5000, "run.toml is nested too deeply: at most 32"),
    "lists in lists, a few": ("k = " + "[" * 40 + "]" * 40, "k is nested over 32 deep"),
    "tables in tables": ("k = " + "{a = " * 5000, "run.toml is nested too deeply: at most 32"),
    "5,000 digits": ("seed = " + "9" * 5000, "run.toml is not a TOML file: Exceeds the limit"),
    "5,000 hexadecimal digits": ("seed = 0x" + "f" * 5000, "seed is an integer of 20000 bits"),
    "NUL": ('save = "a\\u0000b"', "save holds a NUL character"),
    "NUL in a key": ('"a\\u0000b" = 1', "the key 'a\\x00b' holds a NUL character"),
    "a bare NUL": ("save = \0", "is not a TOML file"),
    "300 KiB": ("#" * 300 * 1024, "run.toml has over 256 KiB"),
}


def test_what_breaks_a_parser_is_refused_in_one_paragraph(tmp_path: Path) -> None:
    wrong = {}
    for name, (text, message) in HOSTILE.items():
        path = tmp_path / "run.toml"
        path.write_text(text)
        try:
            read_run_file(path)
            wrong[name] = "accepted"
        except Exception as error:
            if type(error) is not ConfigError or message not in str(error) or len(str(error).split()) > 60:
                wrong[name] = repr(error)[:500]
    assert not wrong


def test_texts_and_lists_full_of_dots_are_read(tmp_path: Path) -> None:
    dots, paths = ".".join("k" * 99), [f"../{number}.jsonl" for number in range(2000)]
    path = tmp_path / "run.toml"
    path.write_text(f'a = \'{dots}\'  # {dots}\nb = """\n\\"""{dots}\n"""\nc = {paths}')
    assert read_run_file(path) == {"a": dots, "b": f'"""{dots}\n', "c": paths}


def test_tables_merge_key_by_key_and_a_use_is_replaced_whole() -> None:
    base: dict[str, Json] = {"lr": 1.0, "reward": {"use": {"math": 1.0}, "math": {"a": 1, "b": 2}}}
    over: dict[str, Json] = {"seed": 3, "reward": {"use": {"format": 0.5}, "math": {"b": 9}}}
    assert merge(base, over) == {"lr": 1.0, "seed": 3, "reward": {"use": {"format": 0.5}, "math": {"a": 1, "b": 9}}}
    assert base == {"lr": 1.0, "reward": {"use": {"math": 1.0}, "math": {"a": 1, "b": 2}}}
