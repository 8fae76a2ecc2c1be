"""Roles: what a plugin can be. Each role has a Protocol and a frozen Spec.

I/O roles (`async def`, driver): generator, reward, group reward, data source, engine, transport, launcher, tracker.
Decision roles (plain functions, driver): group, sample and buffer filter, buffer, reward shaper, batch transform.
Tensor roles (torch, ranks): trainer, advantage, loss, correction. `slime doctor`: check.
"""

from typing import TYPE_CHECKING

from slime_core.lazy import exports

if TYPE_CHECKING:
    from slime_core.roles.algorithm import *
    from slime_core.roles.data import *
    from slime_core.roles.engine import *
    from slime_core.roles.generation import *
    from slime_core.roles.generator import *
    from slime_core.roles.launcher import *
    from slime_core.roles.plugin_set import *
    from slime_core.roles.rewards import *
    from slime_core.roles.spec import *
    from slime_core.roles.trainer import *
    from slime_core.roles.watching import *
    from slime_core.roles.weights import *
else:
    __getattr__, __all__ = exports(__name__)
