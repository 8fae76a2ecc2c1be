"""Contract of the estimators that need the whole batch, for `slime plugins check`."""

from slime_testing import AdvantageContract


class WholeBatchContract(AdvantageContract):
    """Contract of an estimator whose statistics cover all groups of the rollout."""

    independent_groups = False
