"""Catalog: finds plugins, validates what they offer, hands choices out by name.

The only place that touches pluggy.
"""

from slime_core.catalog._suggest import did_you_mean
from slime_core.catalog.checks import check_decision, check_generated, check_selection, check_verdict

__all__ = ["check_decision", "check_generated", "check_selection", "check_verdict", "did_you_mean"]
