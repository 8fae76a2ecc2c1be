"""The reference of the contract kit, docs/reference/checks.md: every check by number, with why and how to fix.

The page is written from the docstrings of the contracts.

    .venv/bin/python tools/reference.py            exit 1 with the difference to docs/reference/checks.md
    .venv/bin/python tools/reference.py --write    write docs/reference/checks.md
"""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from slime_testing.by_role import CONTRACTS
from slime_testing.contract import CheckInfo, Contract
from slime_testing.report import PLUGIN_CONTRACTS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "checks.md"
HEAD = """\
# Checks

<!-- Written by tools/reference.py from the contracts' docstrings: change those. -->

These are the checks of the contract kit; [Plugins](../plugins.md) has the command that runs them. Numbers are stable.
A check's test method is `test_` and its title with underscores. A check is skipped if one that it needs fails; the
report names that one.
"""


def page() -> str:
    """The whole page."""
    contracts = [*PLUGIN_CONTRACTS, *CONTRACTS.values()]
    first: dict[str, str] = {}
    lines = (line for contract in contracts for line in contract_lines(contract, first))
    return "\n".join([HEAD, *lines]).rstrip() + "\n"


def contract_lines(contract: type[Contract], first: dict[str, str]) -> Iterator[str]:
    """A section for one contract; `first` collects the first check with each advice."""
    yield f"## {contract.__name__}\n"
    yield f"{inspect.cleandoc(contract.__doc__ or '')}\n"
    for info in contract.checks().values():
        yield from check_lines(info, first.setdefault(info.advice, info.identity))


def check_lines(info: CheckInfo, first: str) -> Iterator[str]:
    """A heading, and the advice or the check that has the same."""
    yield f"### {info.identity}: {info.title}\n"
    yield f"{info.advice}\n" if first == info.identity else f"As {first}.\n"


if __name__ == "__main__":
    from pages import kept

    sys.exit(kept(PAGE, page()))
