"""Algorithms: published losses and advantage estimators, in addition to slime-core's.

    [loss]
    use = "sapo"

slime-core finds them in `slime_algorithms.plugin`; torch is imported when one is built.
"""

from slime_algorithms.settings import Divergence, DppoSettings, GmpoSettings, PassAtKSettings, SapoSettings

__all__ = ["Divergence", "DppoSettings", "GmpoSettings", "PassAtKSettings", "SapoSettings"]
