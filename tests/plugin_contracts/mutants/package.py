"""An honest package, and each way of breaking it: source and metadata, to be installed."""

from dataclasses import dataclass

MODULE = """
from slime_core import RewardSpec, Score, Settings, Setup, hookimpl

SLIME_API = "1"


class Limits(Settings):
    limit: int = 3


async def short(sample, ctx):
    return Score(float(len(sample.response) < 3))


def build(settings, setup):
    return short


@hookimpl
def slime_rewards():
    yield RewardSpec("short", build, Limits, summary="1 when the response is short")
"""
NAME = "slime-reward-short"


@dataclass(frozen=True)
class Package:
    """A distribution with one module."""

    source: str = MODULE
    entry_points: tuple[tuple[str, str], ...] = (("reward-short", "reward_short"),)
    requires: tuple[str, ...] = ("slime-core>=0.1,<0.2",)
    readme: str = "Offers the reward `short`."


def first(line: str) -> Package:
    """The module begins with this line."""
    return Package(source=f"{line}\n{MODULE}")


def instead(old: str, new: str) -> Package:
    """The module has one text instead of another."""
    assert old in MODULE
    return Package(source=MODULE.replace(old, new))


GOOD = [Package()]
MUTANTS = {
    "PKG-001": [Package(entry_points=(("short", "reward_short"),))],
    "PKG-002": [instead('SLIME_API = "1"', 'SLIME_API = "2"')],
    "PKG-003": [first("import numpy"), first("import warnings; warnings.warn('old')"), first("print('hello')")],
    "PKG-004": [
        Package(requires=("slime-core",)),
        Package(requires=("slime-core>=0.1",)),
        Package(requires=("slime-core-extras>=0.1,<0.2",)),
    ],
    "PKG-005": [instead(', summary="1 when the response is short"', "")],
    "PKG-006": [instead("limit: int = 3", "limit: int"), instead("limit: int = 3", "limit: type = int")],
    "PKG-007": [Package(readme="Rewards.")],
}
