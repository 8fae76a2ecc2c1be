"""Scaffold: writes a complete plugin package for a role, small and working, for its author to change.

Example:

    package = Names.parse("reward", "keywords")          # slime-reward-keywords
    write_package(render(package, License.MIT), Path(package.dist))
"""

from slime_core.scaffold.kinds import KINDS, Kind
from slime_core.scaffold.names import Names
from slime_core.scaffold.origin import editable_checkout
from slime_core.scaffold.package import License, render, write_package

__all__ = ["KINDS", "Kind", "License", "Names", "editable_checkout", "render", "write_package"]
