"""Names of other frameworks lead to ours."""

import pytest

from slime_compat.flags.table import flags
from slime_compat.names import foreign_names
from slime_core.catalog import Catalog, package_of_key
from slime_core.config import FAMILY_OF_KEY, ROLE_OF_ALIAS, FlatKeys, parse_config
from slime_core.errors import ConfigError
from slime_core.roles import SELECTABLE, ForeignName
from slime_core.sample import Json
from tests.tables import table

LEAST: dict[str, Json] = {"hf_checkpoint": "m", "save": "s", "num_rollout": 3, "reward": {"use": "math"}}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.discover()


def error_of(catalog: Catalog, name: str, value: Json = 1) -> str:
    with pytest.raises(ConfigError) as raised:
        parse_config({**LEAST, name: value}, catalog)
    return str(raised.value)


def test_foreign_names_lead_to_known_keys(catalog: Catalog) -> None:
    ours = {*FAMILY_OF_KEY, *SELECTABLE, *ROLE_OF_ALIAS, *FlatKeys(catalog).owners}
    names = list(foreign_names())
    assert {*catalog.foreign_names} >= {*names}
    passed_on = {name for name, flag in flags().items() if flag.owner}  # some trainers have them
    assert not ours & {each.name for each in names} - passed_on
    assert [each.key for each in names if each.key not in {"", *ours} and not package_of_key(each.key)[0]] == []


def test_foreign_names_are_unique_per_framework() -> None:
    names = [(each.framework, each.name) for each in foreign_names()]
    assert {framework for framework, _ in names} == {"slime", "TRL", "verl", "OpenRLHF", "peft", ""}
    assert len(names) == len({*names})


def test_slime_flags_name_their_equivalent(catalog: Catalog) -> None:
    assert error_of(catalog, "global_batch_size") == (
        "unknown key 'global_batch_size'. It is slime's: num_steps_per_rollout is rollout_batch_size * "
        "n_samples_per_prompt / global_batch_size."
    )
    assert "calls the function as slime does." in error_of(catalog, "group_rm", True)


def test_differing_values_are_translated(catalog: Catalog) -> None:
    assert error_of(catalog, "lr_scheduler_type", "inverse_sqrt") == (
        "unknown key 'lr_scheduler_type'. Did you mean 'lr_decay_style'? TRL's 'inverse_sqrt' is "
        "'inverse-square-root' here."
    )
    assert error_of(catalog, "lr_scheduler_type", "linear").endswith("Did you mean 'lr_decay_style'?")


@table("each", [each for each in foreign_names() if each.values])
def test_translated_values_are_accepted(catalog: Catalog, each: ForeignName) -> None:
    optional = {"lr_wsd_decay_iters": 1} if "WSD" in each.values.values() else {}
    for value in each.values.values():
        chosen: Json = {"use": value} if each.key in SELECTABLE else value
        parse_config({**LEAST, each.key: chosen, **(optional if value == "WSD" else {})}, catalog)
