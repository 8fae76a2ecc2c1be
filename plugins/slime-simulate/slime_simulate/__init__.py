"""Simulation of a training run's time: the scheduler's own code on a virtual clock, over simulated engines.

Example:

    figures = simulate(Scenario(rollout_policy="continuous", max_staleness=2))
"""

from slime_simulate.clock import VirtualLoop
from slime_simulate.fleet import Fleet, FleetShape, Lengths
from slime_simulate.simulation import Figures, Scenario, simulate

__all__ = ["Figures", "Fleet", "FleetShape", "Lengths", "Scenario", "VirtualLoop", "simulate"]
