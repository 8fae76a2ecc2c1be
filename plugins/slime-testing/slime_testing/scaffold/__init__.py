"""Scaffold: writes a complete plugin package for a role, small and working, for its author to change.

Example:

    package = Names.parse("reward", "keywords")          # slime-reward-keywords
    write_package(render(package, License.MIT), Path(package.dist))
"""

from slime_testing.scaffold.kinds import KINDS, Kind
from slime_testing.scaffold.names import Names
from slime_testing.scaffold.origin import beside_core
from slime_testing.scaffold.package import License, render, write_package

__all__ = ["KINDS", "Kind", "License", "Names", "beside_core", "render", "write_package"]
