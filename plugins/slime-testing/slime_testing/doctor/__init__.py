"""Runs the checks of `slime doctor`, those here and those of plugins; every one ends in a finding.

Example:

    for examined in examine(catalog, setup):
        print(examined.name, examined.finding.health.value, examined.finding.text)
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from slime_core.catalog import Catalog, Registered
from slime_core.roles import CheckSpec, Finding, Health, Setup
from slime_testing.doctor.checks import core_checks

OWN = "slime-testing"
"""The package of the checks here."""
PATIENCE_S = 20.0
"""Seconds after which a check is left behind."""


@dataclass(frozen=True, slots=True)
class Examined:
    """One check that was run."""

    name: str
    summary: str
    finding: Finding
    again: Callable[[], Finding]


def examine(catalog: Catalog, setup: Setup, patience_s: float = PATIENCE_S) -> Iterator[Examined]:
    """Run every check that plugins offer, one after another, in the order of the catalog.

    The core's own are run even where its entry point is not found: then they are needed most.
    """
    offered = catalog.choices(CheckSpec).values()
    own = [each for each in offered if each.plugin == OWN] or list(_unregistered())
    for registered in [*own, *(each for each in offered if each.plugin != OWN)]:
        run = _runner(registered, setup, patience_s)
        yield Examined(registered.qualified, registered.spec.summary, run(), run)


def _unregistered() -> Iterator[Registered[CheckSpec]]:
    for spec in core_checks():
        yield Registered(spec, f"{OWN}/{spec.name}", OWN, "", "")


def _runner(registered: Registered[CheckSpec], setup: Setup, patience_s: float) -> Callable[[], Finding]:
    def run() -> Finding:
        found: list[object] = []

        def look() -> None:
            try:
                found.append(registered.spec.factory(registered.spec.model(), setup)())
            except (Exception, SystemExit) as error:
                found.append(_failed(registered, f"raised {type(error).__name__}: {error}"))

        # A daemon: a check that hangs must not keep the process.
        thread = threading.Thread(target=look, name=f"check {registered.qualified}", daemon=True)
        thread.start()
        thread.join(patience_s)
        if not found:
            return _failed(registered, f"gave no answer in {patience_s:g} s")
        finding = found[0]
        if not isinstance(finding, Finding):
            return _failed(registered, f"returned a {type(finding).__name__}; expected a Finding")
        return finding

    return run


def _failed(registered: Registered, what: str) -> Finding:
    text = f"the check itself {what}"
    return Finding(Health.ERROR, text, f"tell the authors of {registered.plugin}: {registered.origin}")


__all__ = ["OWN", "PATIENCE_S", "Examined", "core_checks", "examine"]
