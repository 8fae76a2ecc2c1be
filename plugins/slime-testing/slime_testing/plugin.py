"""Entry point: the checks of `slime doctor`."""

from collections.abc import Iterable

from slime_core.hookspecs import hookimpl
from slime_core.roles import CheckSpec

SLIME_API = "1"


@hookimpl
def slime_checks() -> Iterable[CheckSpec]:
    """The core's checks for `slime doctor`."""
    from slime_testing.doctor import core_checks

    return core_checks()
