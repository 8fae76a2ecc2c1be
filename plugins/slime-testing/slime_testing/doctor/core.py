"""The core's own checks, in the order in which they are shown."""

from collections.abc import Iterator

from slime_core.roles import CheckSpec
from slime_testing.doctor.environment import cpus, python_version, requirements, shared_memory
from slime_testing.doctor.folders import leftovers, room
from slime_testing.doctor.packages import core_distribution, duplicates
from slime_testing.doctor.plugins import plugin_api, plugin_speed, plugins


def core_checks() -> Iterator[CheckSpec]:
    """The core's own checks, in the order in which they are shown."""
    yield CheckSpec.from_function("python", python_version, "Is this a Python that slime-core is tested on?")
    yield CheckSpec.from_function("core", core_distribution, "Is the slime-core that is installed this one?")
    yield CheckSpec.from_function("duplicates", duplicates, "Does an old installation shadow a plugin?")
    yield CheckSpec.from_function("plugins", plugins, "Does every installed plugin load?")
    yield CheckSpec.from_function("plugin_api", plugin_api, "Is every plugin written for this core?")
    yield CheckSpec.from_function("plugin_speed", plugin_speed, "Does a plugin make every command slow?")
    yield CheckSpec.from_function("requirements", requirements, "Is all there that plugins need?")
    yield CheckSpec.from_function("cpus", cpus, "May this process use the cores that it sees?")
    yield CheckSpec.from_function("shared_memory", shared_memory, "Is /dev/shm large enough?")
    yield CheckSpec.from_function("room", room, "Is there room for runs?")
    yield CheckSpec.from_function("leftovers", leftovers, "Did a killed run leave scratch files?")
