"""Simulation of a training run's time: the scheduler's own code on a virtual clock, over simulated engines.

Example:

    figures = simulate(Scenario(rollout_policy="continuous", max_staleness=2))
"""

from typing import TYPE_CHECKING

from slime_core.lazy import exports

if TYPE_CHECKING:
    from slime_simulate.clock import VirtualLoop as VirtualLoop
    from slime_simulate.fleet import Fleet as Fleet
    from slime_simulate.fleet import FleetShape as FleetShape
    from slime_simulate.fleet import Lengths as Lengths
    from slime_simulate.simulation import Figures as Figures
    from slime_simulate.simulation import Scenario as Scenario
    from slime_simulate.simulation import simulate as simulate
else:
    __getattr__, __all__ = exports(__name__)
