"""What a scaffolded package is called, and which names are refused."""

import pytest

from slime_core.errors import ConfigError, UnknownName
from slime_core.hookspecs import PROVIDER_OF_ROLE
from slime_testing.scaffold import KINDS, Names
from tests.tables import table


def test_every_role_and_both_kinds_of_hooks_can_be_scaffolded() -> None:
    assert {kind.key for kind in KINDS.values()} == {*PROVIDER_OF_ROLE, "run_hooks", "rank_hooks"}


def test_an_unknown_role_is_told_the_nearest_and_all() -> None:
    with pytest.raises(UnknownName, match=r"no role 'rewrad'\. Did you mean 'reward'\? Roles: .*rank-hooks"):
        Names.parse("rewrad", "mine")


@table(
    "name, offered",
    [
        ("KeyWords", "key-words"),
        ("key_words", "key-words"),
        ("-key", "key"),
        ("key--words", "key-words"),
        ("key words", "key-words"),
        ("key.words", "key-words"),
        ("../key", "key"),
        ("clé", "cl"),
        ("", "my-own"),
        ("日本", "my-own"),
        ("k" * 41, "k" * 40),
        ("key\n", "key"),
    ],
)
def test_a_bad_name_is_refused_with_a_good_one(name: str, offered: str) -> None:
    with pytest.raises(ConfigError, match=f"such as '{offered}'"):
        Names.parse("reward", name)
    assert Names.parse("reward", offered).name == offered


@table("name", ["x", "reward-x", "slime-reward-x"])
def test_the_name_of_the_distribution_is_taken_as_it_is(name: str) -> None:
    names = Names.parse("reward", name)
    assert (names.dist, names.module, names.name) == ("slime-reward-x", "slime_reward_x", "x")


@table(
    "name, class_name",
    [("x", "X"), ("best-of-3", "BestOf3"), ("3d", "GroupReward3d"), ("none", "NoneGroupReward")],
)
def test_a_class_is_named_after_the_plugin(name: str, class_name: str) -> None:
    assert Names.parse("group-reward", name).class_name == class_name
