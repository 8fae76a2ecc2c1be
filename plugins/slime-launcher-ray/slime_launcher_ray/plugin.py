"""What this package offers: the launcher `ray`. Ray itself is imported when a run builds it."""

from collections.abc import Iterable

from slime_core.hookspecs import hookimpl
from slime_core.roles import Launcher, LauncherSetup, LauncherSpec
from slime_launcher_ray.settings import RaySettings

SLIME_API = "1"


@hookimpl
def slime_launchers() -> Iterable[LauncherSpec]:
    """Actors of a cluster."""
    yield LauncherSpec("ray", _launcher, RaySettings, "Ray actors, on this machine or on a cluster that runs")


def _launcher(settings: RaySettings, setup: LauncherSetup) -> Launcher:
    from slime_launcher_ray.launcher import RayLauncher

    return RayLauncher(settings, setup)
