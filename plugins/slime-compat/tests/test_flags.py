"""Every flag of slime has the same name here, is translated, or is refused with advice."""

import runpy
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from slime_compat.flags.table import Flag, Outcome, Takes, advice, flags, key_of
from slime_compat.names import other_names
from slime_core.catalog import Catalog
from slime_core.config import FAMILY_OF_KEY, ROLE_OF_ALIAS, FlatKeys, Installed, merge, parse_config
from slime_core.errors import ConfigError
from slime_core.sample import Json
from tests.tables import table

ROOT = Path(__file__).resolve().parents[3]
STAGES: dict[str, Json] = {"trainer": {"use": "megatron"}, "pipeline_model_parallel_size": 2}
NEEDS: dict[str, dict[str, Json]] = {
    "decoder_first_pipeline_num_layers": STAGES,
    "decoder_last_pipeline_num_layers": STAGES,
    "rm_url": {"reward": {"use": "remote_rm"}},
    "update_weight_disk_dir": {"transport": {"use": "disk"}},
}
"""Further keys that a flag needs."""
LEAST: dict[str, Json] = {"hf_checkpoint": "m", "prompt_data": "p", "save": "s", "num_rollout": 3}


@pytest.fixture(scope="module")
def installed() -> Installed:
    return Installed()


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.discover()


def of(*outcomes: Outcome) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return table("flag", [flag for flag in flags().values() if flag.outcome in outcomes])


def test_no_flag_of_slime_is_missing() -> None:
    """The number of arguments of slime 0.3.1, of its servers, and of former releases."""
    groups = Counter(flag.group for flag in flags().values())
    had, teacher, engines = "Flags that slime had", "The teacher's server", "SGLang and its router"
    assert (groups[had], groups[teacher], groups[engines]) == (31, 8, 7)
    megatron = {"Parallelism and memory", "Optimization", "The model, by its config.json", "Balance of experts"}
    assert sum(groups.values()) - 31 - 8 - 7 - sum(groups[each] for each in megatron) == 223


@of(Outcome.SAME)
def test_flags_of_the_same_name_are_keys(catalog: Catalog, flag: Flag) -> None:
    assert flag.name in {*FAMILY_OF_KEY, *ROLE_OF_ALIAS} or FlatKeys(catalog).owners_of(flag.name)


def taken(flag: Flag) -> Json:
    """A valid value of the flag."""
    return True if flag.takes is Takes.NOTHING else _given(flag)


@of(Outcome.MAPPED)
def test_mapped_flags_equal_their_keys(catalog: Catalog, flag: Flag) -> None:
    """A flag gives the same configuration as the keys on the reference page."""
    if flag.owner:
        return  # depends on whether the trainer has the setting
    before = merge({"reward": {"use": "math"}}, {**LEAST, **NEEDS.get(flag.name, {})})
    if flag.name in ("rm_type", "custom_rm_path"):
        del before["reward"]
    by_slimes_name = parse_config({**before, flag.name: taken(flag)}, catalog)
    assert by_slimes_name.to_dict() == parse_config(merge(before, _written(flag)), catalog).to_dict()


def test_mapped_flag_must_agree_with_the_key(catalog: Catalog) -> None:
    with pytest.raises(ConfigError, match=r"rm_type = 'math' contradicts reward.use = 'dapo': give one of them"):
        parse_config({**LEAST, "reward": {"use": "dapo"}, "rm_type": "math"}, catalog)
    parse_config({**LEAST, "reward": {"use": "math"}, "rm_type": "math"}, catalog)


def test_approximate_mappings_are_refused(catalog: Catalog) -> None:
    with pytest.raises(ConfigError, match=r"^unknown key 'custom_tis_function_path'"):
        parse_config({**LEAST, "reward": {"use": "math"}, "custom_tis_function_path": "mine.tis"}, catalog)
    with pytest.raises(ConfigError, match=r"^unknown key 'rollout_seed'"):
        parse_config({**LEAST, "reward": {"use": "math"}, "rollout_seed": 42}, catalog)


@of(Outcome.EXPLAINED, Outcome.ALWAYS, Outcome.REFUSED)
def test_other_flags_get_advice(catalog: Catalog, flag: Flag) -> None:
    if flag.owner and FlatKeys(catalog).owners_of(flag.name):
        return  # the trainer has it
    with pytest.raises(ConfigError) as raised:
        parse_config({**LEAST, "reward": {"use": "math"}, flag.name: 1}, catalog)
    message = str(raised.value)
    assert message.startswith(f"unknown key {flag.name!r}. ")
    if flag.name in other_names()["keys"][""]:
        assert f"Did you mean {other_names()['keys'][''][flag.name]!r}?" in message
        return
    assert advice(flag) in message
    assert not (key := key_of(flag)) or f"Did you mean {key!r}?" in message
    assert message.count(".") >= 2 or key, "says nothing but its name"


@table("flag", [each for each in flags().values() if each.key or each.set])
def test_mapped_values_are_accepted(installed: Installed, flag: Flag) -> None:
    """A run file with the flag's example, or with the keys that it sets."""
    installed.check(merge({"reward": {"use": "math"}}, {**LEAST, **_written(flag)}))


def _given(flag: Flag) -> Json:
    """The flag's example, as typed."""
    kinds = {Takes.INTEGER: int, Takes.NUMBER: float}
    return kinds.get(flag.takes, str)(flag.example)


def _written(flag: Flag) -> dict[str, Json]:
    """The keys that replace the flag, with further keys that they need."""
    assert flag.set or flag.example, "a row with a key has an example"
    value = flag.values.get(flag.example, _given(flag))
    written: dict[str, Json] = dict(flag.set)
    if flag.key:
        *path, key = flag.key.split(".")
        table: dict[str, Json] = {key: value}
        for part in reversed(path):
            table = {part: table}
        written = merge(written, table)
    return merge(written, NEEDS.get(flag.name, {}))


@of(*Outcome)
def test_each_row_has_advice(flag: Flag) -> None:
    assert flag.outcome is Outcome.SAME or advice(flag) or key_of(flag)
    assert not (flag.always and flag.refused)


@pytest.mark.parametrize("name", ["cpu_offloading", "hidden_dropout", "fp16"])
def test_unsupported_megatron_flags_are_refused(installed: Installed, name: str) -> None:
    refused = installed.refusal("trainer", "megatron", name, True)
    assert f"trainer.megatron.{name}" in refused or f"{name} of megatron-core's" in refused


def test_sglang_flags_are_checked_by_the_plugin(installed: Installed) -> None:
    assert installed.refusal("engine", "sglang", "sglang_mem_fraction_static", 0.7) == ""
    assert "mem_fraction_static" in installed.refusal("engine", "sglang", "sglang_mem_fraction_statik", 0.7)
    assert "follows from hf_checkpoint" in installed.refusal("engine", "sglang", "sglang_model_path", "m")


def test_flags_page_is_current() -> None:
    page = runpy.run_path(str(ROOT / "tools" / "slime_flags.py"))["page"]()
    assert page == (ROOT / "docs" / "reference" / "slime-flags.md").read_text("utf-8"), (
        "tools/slime_flags.py --write writes it"
    )
