"""Entry point: the launcher `ray` and checks of clusters. Ray is imported only when a run uses it."""

from collections.abc import Iterable, Sequence
from typing import cast

from slime_core.hookspecs import hookimpl
from slime_core.roles import CheckSpec, Launcher, LauncherSetup, LauncherSpec, Settings, WorkerGroupSpec
from slime_launcher_ray.settings import RaySettings

SLIME_API = "1"


@hookimpl
def slime_launchers() -> Iterable[LauncherSpec]:
    """The launcher `ray`."""
    yield LauncherSpec(
        "ray", _launcher, RaySettings, "Ray actors, on this machine or on a running cluster", check=_check
    )


@hookimpl
def slime_checks() -> Iterable[CheckSpec]:
    """The checks of Ray on this machine and on the nodes of a cluster."""
    from slime_launcher_ray.doctor import checks

    return checks()


def _launcher(settings: RaySettings, setup: LauncherSetup) -> Launcher:
    from slime_launcher_ray.checks import require_ray

    require_ray("the launcher 'ray'")
    from slime_launcher_ray.launcher import RayLauncher

    return RayLauncher(settings, setup)


def _check(settings: Settings, groups: Sequence[WorkerGroupSpec]) -> None:
    from slime_launcher_ray.checks import check_use

    check_use(cast(RaySettings, settings), groups)
