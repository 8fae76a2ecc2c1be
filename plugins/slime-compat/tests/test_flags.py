"""Every flag of slime's is there under its own name, told what it is here, or refused with what to do instead."""

import runpy
from collections import Counter
from pathlib import Path

import pytest

from slime_compat.flags.spelling import advice, key_of
from slime_compat.flags.table import Flag, Outcome, Takes, flags
from slime_compat.names import others
from slime_core.catalog import Catalog
from slime_core.config import CHOOSES, FAMILY_OF_KEY, FlatKeys, merge, parse_config
from slime_core.config.asking import Installed
from slime_core.errors import ConfigError
from slime_core.roles import SELECTABLE
from slime_core.sample import Json

ROOT = Path(__file__).resolve().parents[3]
LEAST: dict[str, Json] = {"hf_checkpoint": "m", "prompt_data": "p", "save": "s", "num_rollout": 3}


@pytest.fixture(scope="module")
def installed() -> Installed:
    return Installed()


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.discover()


def of(*outcomes: Outcome) -> object:
    rows = [flag for flag in flags().values() if flag.outcome in outcomes]
    return pytest.mark.parametrize("flag", rows, ids=lambda flag: flag.name)


def test_no_flag_of_slime_is_missing() -> None:
    """The number of slime 0.3.1's own arguments, of its servers', and of those that it had."""
    groups = Counter(flag.group for flag in flags().values())
    had, teacher, engines = "Flags that slime had", "The teacher's server", "SGLang and its router"
    assert (groups[had], groups[teacher], groups[engines]) == (31, 8, 7)
    megatron = {"Parallelism and memory", "Optimization", "The model, by its config.json", "Balance of experts"}
    assert sum(groups.values()) - 31 - 8 - 7 - sum(groups[each] for each in megatron) == 223


@of(Outcome.SAME)
def test_a_flag_of_the_same_name_is_a_key(catalog: Catalog, flag: Flag) -> None:
    assert flag.name in {*FAMILY_OF_KEY, *CHOOSES} or FlatKeys(catalog).owners_of(flag.name)


@of(Outcome.MAPPED, Outcome.ALWAYS, Outcome.REFUSED)
def test_any_other_flag_is_answered(catalog: Catalog, flag: Flag) -> None:
    if flag.asks and FlatKeys(catalog).owners_of(flag.name):
        return  # the trainer has it
    with pytest.raises(ConfigError) as raised:
        parse_config({**LEAST, "reward": {"use": "math"}, flag.name: 1}, catalog)
    said = str(raised.value)
    assert said.startswith(f"unknown key {flag.name!r}. ")
    if flag.name in others.KEYS[""]:
        assert f"Did you mean {others.KEYS[''][flag.name]!r}?" in said
        return
    assert advice(flag) in said
    assert not (key := key_of(flag)) or f"Did you mean {key!r}?" in said
    assert said.count(".") >= 2 or key, "says nothing but its name"


@pytest.mark.parametrize(
    "flag", [each for each in flags().values() if each.key or each.set], ids=lambda flag: flag.name
)
def test_what_a_flag_becomes_is_accepted(installed: Installed, flag: Flag) -> None:
    """Its example, or what it sets, in a run file that is accepted but for it."""
    installed.check(merge({"reward": {"use": "math"}}, {**LEAST, **_written(flag)}))


def _written(flag: Flag) -> dict[str, Json]:
    """The keys that it becomes, with what else they need."""
    assert flag.set or flag.example, "a row with a key has an example"
    value: Json = flag.values.get(flag.example, flag.example)
    if flag.takes in (Takes.INTEGER, Takes.NUMBER):
        value = float(flag.example) if flag.takes is Takes.NUMBER else int(flag.example)
    written: dict[str, Json] = dict(flag.set)
    if flag.key:
        *path, key = flag.key.split(".")
        table: dict[str, Json] = {key: value}
        for part in reversed(path):
            table = {part: table}
        written = merge(written, table)
    stages: dict[str, Json] = {"trainer": {"use": "megatron"}, "pipeline_model_parallel_size": 2}
    needs: dict[str, dict[str, Json]] = {
        "decoder_first_pipeline_num_layers": stages,
        "decoder_last_pipeline_num_layers": stages,
        "rm_url": {"reward": {"use": "remote_rm"}},
        "update_weight_disk_dir": {"transport": {"use": "disk"}},
        "data_source_path": {"prompt_data": []},
    }
    return merge(written, needs.get(flag.name, {}))


@of(*Outcome)
def test_the_row_says_something(flag: Flag) -> None:
    assert flag.outcome is Outcome.SAME or advice(flag) or key_of(flag)
    assert not (flag.always and flag.refused)


@pytest.mark.parametrize("name", ["cpu_offloading", "hidden_dropout", "fp16"])
def test_what_megatron_has_and_the_trainer_does_not_is_refused_in_its_words(installed: Installed, name: str) -> None:
    refused = installed.refusal("trainer", "megatron", name, True)
    assert f"trainer.megatron.{name}" in refused or f"{name} of megatron-core's" in refused


def test_arguments_of_sglang_are_those_of_the_installed_one(installed: Installed) -> None:
    assert installed.refusal("engine", "sglang", "sglang_mem_fraction_static", 0.7) == ""
    assert "mem_fraction_static" in installed.refusal("engine", "sglang", "sglang_mem_fraction_statik", 0.7)
    assert "follows from hf_checkpoint" in installed.refusal("engine", "sglang", "sglang_model_path", "m")


def test_every_role_that_a_row_names_is_one() -> None:
    named = {flag.key.partition(".")[0] for flag in flags().values() if "." in flag.key}
    assert named <= {*SELECTABLE}


def test_the_page_is_what_the_tables_say() -> None:
    page = runpy.run_path(str(ROOT / "tools" / "slime_flags.py"))["page"]()
    assert page == (ROOT / "docs" / "reference" / "slime-flags.md").read_text("utf-8"), (
        "tools/slime_flags.py --write writes it"
    )
