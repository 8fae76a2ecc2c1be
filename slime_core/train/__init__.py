"""Train: the pure functions of training, used unchanged by every trainer.

Splitting a step over ranks needs no torch and happens in the driver; advantages, losses and the rest run on the ranks.
What a trainer, an estimator or a loss calls is public and named here; a name is imported when it is asked for, so that
this package stays free of torch.
"""

from typing import TYPE_CHECKING

from slime_core._lazy import exports

if TYPE_CHECKING:
    from slime_core.catalog.rank_hooks import RankHooks
    from slime_core.catalog.used import Used
    from slime_core.catalog.worker import discover_in_worker
    from slime_core.config.weights import not_trainable, refuse_quantized
    from slime_core.train.algorithm import Algorithm
    from slime_core.train.build import build_in_rank
    from slime_core.train.estimators.grpo import GrpoSettings
    from slime_core.train.failing import failing_together
    from slime_core.train.groups import Groups
    from slime_core.train.losses import policy_gradient, value_loss
    from slime_core.train.mismatch import mismatch_extremes
    from slime_core.train.norm import check_weights_finite, gradient_norm
    from slime_core.train.portable import make_portable
    from slime_core.train.reduce import token_weights
    from slime_core.train.schedule import learning_rate
    from slime_core.train.sequences import masked_mean, masked_sum
    from slime_core.train.served_weights import ServedWeights
    from slime_core.train.settings import PolicyGradientSettings, PolicyLossSettings
    from slime_core.train.share import Share
    from slime_core.train.sums import MicroBatch, Sums
    from slime_core.train.train_data import save_train_data

_HOMES = {
    "slime_core.catalog.rank_hooks": "RankHooks",
    "slime_core.catalog.used": "Used",
    "slime_core.catalog.worker": "discover_in_worker",
    "slime_core.config.weights": "not_trainable refuse_quantized",
    "slime_core.train.algorithm": "Algorithm",
    "slime_core.train.build": "build_in_rank",
    "slime_core.train.estimators.grpo": "GrpoSettings",
    "slime_core.train.failing": "failing_together",
    "slime_core.train.groups": "Groups",
    "slime_core.train.losses": "policy_gradient value_loss",
    "slime_core.train.mismatch": "mismatch_extremes",
    "slime_core.train.norm": "check_weights_finite gradient_norm",
    "slime_core.train.portable": "make_portable",
    "slime_core.train.reduce": "token_weights",
    "slime_core.train.schedule": "learning_rate",
    "slime_core.train.sequences": "masked_mean masked_sum",
    "slime_core.train.served_weights": "ServedWeights",
    "slime_core.train.settings": "PolicyGradientSettings PolicyLossSettings",
    "slime_core.train.share": "Share",
    "slime_core.train.sums": "MicroBatch Sums",
    "slime_core.train.train_data": "save_train_data",
}

__getattr__ = exports(__name__, _HOMES)

__all__ = [
    "Algorithm",
    "Groups",
    "GrpoSettings",
    "MicroBatch",
    "PolicyGradientSettings",
    "PolicyLossSettings",
    "RankHooks",
    "ServedWeights",
    "Share",
    "Sums",
    "Used",
    "build_in_rank",
    "check_weights_finite",
    "discover_in_worker",
    "failing_together",
    "gradient_norm",
    "learning_rate",
    "make_portable",
    "masked_mean",
    "masked_sum",
    "mismatch_extremes",
    "not_trainable",
    "policy_gradient",
    "refuse_quantized",
    "save_train_data",
    "token_weights",
    "value_loss",
]
