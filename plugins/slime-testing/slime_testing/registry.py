"""Every check of the kit, by its number.

Example:

    ALL_CHECKS["REW-003"].title             # "it leaves the sample as it was"
"""

from collections.abc import Mapping
from types import MappingProxyType

from slime_testing.by_role import CONTRACTS
from slime_testing.contract import CheckInfo, Contract
from slime_testing.package import PluginPackageContract
from slime_testing.watching import RunHooksContract

PLUGIN_CONTRACTS: tuple[type[Contract], ...] = (PluginPackageContract, RunHooksContract)
"""What judges a plugin as a whole."""


def _collected() -> dict[str, CheckInfo]:
    """Every check.

    Raises:
        ValueError: two contracts use the same number.
    """
    found: dict[str, CheckInfo] = {}
    for contract in (*PLUGIN_CONTRACTS, *CONTRACTS.values()):
        for identity, info in contract.checks().items():
            if identity in found:
                raise ValueError(f"{contract.__name__}.{info.method}: {identity} is {found[identity].method}'s number")
            found[identity] = info
    return found


ALL_CHECKS: Mapping[str, CheckInfo] = MappingProxyType(_collected())
"""Every check of every contract, by number."""
