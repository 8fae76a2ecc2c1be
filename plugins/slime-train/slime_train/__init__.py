"""Train: the pure functions of training, used unchanged by every trainer.

Splitting a step over ranks needs no torch and happens in the driver; advantages, losses and the rest run on the ranks.
What a trainer, an estimator or a loss calls is public and named here; a name is imported when it is asked for, so that
this package stays free of torch.
"""

from typing import TYPE_CHECKING

from slime_core.lazy import exports

if TYPE_CHECKING:
    from slime_core.catalog import discover_in_worker as discover_in_worker
    from slime_core.catalog.catalog import BuiltChoice as BuiltChoice
    from slime_core.config.model_dir import not_trainable as not_trainable
    from slime_core.config.model_dir import refuse_quantized as refuse_quantized
    from slime_train.algorithm import Algorithm as Algorithm
    from slime_train.algorithm import build_in_rank as build_in_rank
    from slime_train.algorithm import mismatch_extremes as mismatch_extremes
    from slime_train.estimators.grpo import GrpoSettings as GrpoSettings
    from slime_train.groups import Groups as Groups
    from slime_train.losses import policy_gradient as policy_gradient
    from slime_train.losses import value_loss as value_loss
    from slime_train.norm import check_weights_finite as check_weights_finite
    from slime_train.norm import gradient_norm as gradient_norm
    from slime_train.portable import make_portable as make_portable
    from slime_train.rank_errors import fail_on_all_ranks as fail_on_all_ranks
    from slime_train.rank_hooks import RankHooks as RankHooks
    from slime_train.schedule import learning_rate as learning_rate
    from slime_train.sequences import masked_mean as masked_mean
    from slime_train.sequences import masked_sum as masked_sum
    from slime_train.served_weights import ServedWeights as ServedWeights
    from slime_train.settings import PolicyGradientSettings as PolicyGradientSettings
    from slime_train.settings import PolicyLossSettings as PolicyLossSettings
    from slime_train.share import MicroBatch as MicroBatch
    from slime_train.share import Share as Share
    from slime_train.share import Sums as Sums
    from slime_train.share import save_train_data as save_train_data
    from slime_train.share import token_weights as token_weights
else:
    __getattr__, __all__ = exports(__name__)
