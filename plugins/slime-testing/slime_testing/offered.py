"""Contracts that plugins offer: what only an author knows of a choice, for who judges it where it is installed.

Example:

    [project.entry-points."slime.contracts"]
    "engine.mine" = "slime_engine_mine.contract:MineContract"       # a subclass of EngineContract, for the engine mine

Its attributes and methods say which settings, model or samples the checks take. `slime plugins check` and `pytest
--slime-plugin` judge with it instead of with the role's bare contract.
"""

import importlib.metadata

from slime_core.errors import PluginError
from slime_testing.contract import Contract

GROUP = "slime.contracts"
"""The entry-point group; an entry is called ROLE.NAME."""


def offered_contracts(dist: str) -> dict[str, importlib.metadata.EntryPoint]:
    """The entries of a distribution by name; nothing is imported."""
    entries = importlib.metadata.distribution(dist).entry_points
    return {each.name: each for each in entries if each.group == GROUP}


def load_contract(entry: importlib.metadata.EntryPoint, base: type[Contract]) -> type[Contract]:
    """The class of an entry.

    Raises:
        PluginError: it cannot be imported, or is not a subclass of the role's contract.
    """
    told = f"{entry.name} = {entry.value} of the group {GROUP}"
    try:
        loaded: object = entry.load()
    except Exception as error:
        raise PluginError(f"{told} cannot be imported: {error}") from error
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise PluginError(f"{told} is {loaded!r:.80}; expected a subclass of {base.__name__}")
    return loaded
