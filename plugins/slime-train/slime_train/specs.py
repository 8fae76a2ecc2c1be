"""The specs of the core's own losses and corrections. No torch.

Example:

    names = [spec.name for spec in losses()]        # policy_loss, gspo, ...
"""

from collections.abc import Iterable
from typing import cast

from slime_core.roles import (
    Correction,
    CorrectionSpec,
    Loss,
    LossSpec,
    Settings,
    Setup,
)
from slime_train.settings import (
    CispoSettings,
    GspoSettings,
    IcepopSettings,
    MisSettings,
    PolicyGradientSettings,
    PolicyLossSettings,
    TisSettings,
)


def losses() -> Iterable[LossSpec]:
    """Specs of the policy gradients and of plain likelihood."""
    yield LossSpec(
        "policy_loss",
        _policy_loss,
        PolicyLossSettings,
        "Clipped policy gradient, asymmetric and dual clip",
        zero_without_advantage=_adds_no_entropy,
        flat_keys=tuple(PolicyLossSettings.model_fields),
    )
    yield LossSpec(
        "gspo",
        _gspo_loss,
        GspoSettings,
        "The same with one ratio a sample (GSPO)",
        zero_without_advantage=_adds_no_entropy,
        flat_keys=tuple(GspoSettings.model_fields),
        estimator="grpo",
    )
    yield LossSpec(
        "cispo",
        _cispo_loss,
        CispoSettings,
        "Log-likelihood weighed by advantage and clipped ratio (CISPO)",
        zero_without_advantage=_adds_no_entropy,
        flat_keys=tuple(CispoSettings.model_fields),
        estimator="grpo",
    )
    yield LossSpec("sft_loss", _sft_loss, summary="Negative log-likelihood of the response", uses_advantages=False)


def _adds_no_entropy(settings: Settings) -> bool:
    return cast(PolicyGradientSettings, settings).entropy_coef == 0.0


def _policy_loss(settings: PolicyLossSettings, setup: Setup) -> Loss:
    from slime_train.losses import PolicyLoss

    return PolicyLoss(settings)


def _gspo_loss(settings: GspoSettings, setup: Setup) -> Loss:
    from slime_train.losses import GspoLoss

    return GspoLoss(settings)


def _cispo_loss(settings: CispoSettings, setup: Setup) -> Loss:
    from slime_train.losses import CispoLoss

    return CispoLoss(settings)


def _sft_loss(settings: Settings, setup: Setup) -> Loss:
    from slime_train.losses import SftLoss

    return SftLoss()


def corrections() -> Iterable[CorrectionSpec]:
    """Specs of importance sampling, of several kinds."""
    yield CorrectionSpec(
        "tis",
        _tis,
        TisSettings,
        "Importance weights of tokens, truncated (TIS)",
        flat_keys=tuple(TisSettings.model_fields),
    )
    yield CorrectionSpec(
        "icepop",
        _icepop,
        IcepopSettings,
        "Importance weights of tokens, 0 out of bounds (IcePop)",
        flat_keys=tuple(IcepopSettings.model_fields),
    )
    yield CorrectionSpec(
        "mis", _mis, MisSettings, "Importance weights of tokens or samples: truncated, clipped or rejected; veto (MIS)"
    )


def _tis(settings: TisSettings, setup: Setup) -> Correction:
    from slime_train.corrections import Tis

    return Tis(settings)


def _icepop(settings: IcepopSettings, setup: Setup) -> Correction:
    from slime_train.corrections import Icepop

    return Icepop(settings)


def _mis(settings: MisSettings, setup: Setup) -> Correction:
    from slime_train.corrections import Mis

    return Mis(settings)
