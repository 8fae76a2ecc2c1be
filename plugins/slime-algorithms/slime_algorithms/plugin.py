"""Entry points of this package: three losses and two advantage estimators."""

from collections.abc import Iterable
from typing import cast

from slime_algorithms.settings import DppoSettings, GmpoSettings, PassAtKSettings, SapoSettings
from slime_core import hookimpl
from slime_core.roles import Advantage, AdvantageSpec, Loss, LossSpec, Settings, Setup
from slime_train import PolicyGradientSettings

SLIME_API = "1"


@hookimpl
def slime_losses() -> Iterable[LossSpec]:
    """Policy-gradient losses with trust regions other than a ratio clip."""
    yield LossSpec(
        "sapo",
        _sapo,
        SapoSettings,
        "Policy gradient with a soft gate on the ratio (SAPO)",
        zero_without_advantage=_adds_no_entropy,
    )
    yield LossSpec(
        "gmpo",
        _gmpo,
        GmpoSettings,
        "Geometric mean of a sample's clipped ratios (GMPO)",
        zero_without_advantage=_adds_no_entropy,
    )
    yield LossSpec(
        "dppo",
        _dppo,
        DppoSettings,
        "Policy gradient with a trust region on probabilities (DPPO)",
        zero_without_advantage=_adds_no_entropy,
    )


@hookimpl
def slime_advantages() -> Iterable[AdvantageSpec]:
    """Estimators whose baseline or objective differs from GRPO's."""
    yield AdvantageSpec(
        "opo",
        _opo,
        summary="Rewards relative to the length-weighted mean of their group (OPO)",
        compares_samples=lambda settings: True,
    )
    yield AdvantageSpec(
        "pass_at_k",
        _pass_at_k,
        PassAtKSettings,
        "Advantages for pass@k, the reward of k responses together (pass@k training)",
        compares_samples=lambda settings: True,
    )


def _adds_no_entropy(settings: Settings) -> bool:
    return cast(PolicyGradientSettings, settings).entropy_coef == 0.0


def _sapo(settings: SapoSettings, setup: Setup) -> Loss:
    from slime_algorithms.sapo import SapoLoss

    return SapoLoss(settings)


def _gmpo(settings: GmpoSettings, setup: Setup) -> Loss:
    from slime_algorithms.gmpo import GmpoLoss

    return GmpoLoss(settings)


def _dppo(settings: DppoSettings, setup: Setup) -> Loss:
    from slime_algorithms.dppo import DppoLoss

    return DppoLoss(settings)


def _opo(settings: Settings, setup: Setup) -> Advantage:
    from slime_algorithms.opo import Opo

    return Opo()


def _pass_at_k(settings: PassAtKSettings, setup: Setup) -> Advantage:
    from slime_algorithms.pass_at_k import PassAtK

    return PassAtK(settings)
