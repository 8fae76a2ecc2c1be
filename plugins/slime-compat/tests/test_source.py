"""slime's data sources, and their files in the checkpoint."""

import asyncio
import json

import pytest

from slime_compat.settings import FunctionSettings
from slime_compat.source import SlimeDataSource
from slime_core.errors import ContractError
from slime_core.roles import DataSourceSetup
from slime_core.testing import CharTokenizer


def make(role: str, name: str, **settings: object) -> object:
    raise LookupError(name)


def source(path: str) -> SlimeDataSource:
    setup = DataSourceSetup(make, 1, prompts=(), tokenizer=CharTokenizer(), n_samples_per_prompt=2, shuffle=False)
    return SlimeDataSource(FunctionSettings(path=path), setup)


def draw(made: SlimeDataSource, count: int) -> list[str]:
    return [str(group.samples[0].prompt) for group in asyncio.run(made.draw(count))]


def test_groups_have_identities_and_their_samples_numbers(path: str) -> None:
    first, second = asyncio.run(source(f"{path}Counting").draw(2))
    assert first.id != second.id
    assert [(sample.group_index, sample.index) for sample in second.samples] == [(1, 0), (1, 1)]
    assert len({sample.rollout_id for group in (first, second) for sample in group.samples}) == 4


def test_it_continues_where_its_state_was_taken_with_returned_groups_first(path: str) -> None:
    one = source(f"{path}Counting")
    groups = asyncio.run(one.draw(3))
    one.add(groups[1:])
    state = json.loads(json.dumps(one.state_dict()))
    other = source(f"{path}Counting")
    other.load_state_dict(state)
    assert draw(other, 4) == draw(one, 4) == ["1", "2", "3", "4"]


def test_a_source_that_comes_up_short_is_an_error(path: str) -> None:
    with pytest.raises(ContractError, match=r"get_samples\(3\) gave 2"):
        asyncio.run(source(f"{path}ShortOfPrompts").draw(3))
