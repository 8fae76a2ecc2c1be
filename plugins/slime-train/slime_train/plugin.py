"""The entry point: all choices of slime-train. Listing them imports no torch."""

from collections.abc import Iterable
from pkgutil import resolve_name
from typing import cast

from slime_core.hookspecs import hookimpl
from slime_core.roles import (
    AdvantageSpec,
    CorrectionSpec,
    GroupFilterSpec,
    Isolation,
    LossSpec,
    RewardShaperSpec,
    RewardSpec,
    SampleFilterSpec,
    Settings,
    TransportSpec,
)
from slime_train.estimators import estimators
from slime_train.settings import (
    CispoSettings,
    DiskSettings,
    GspoSettings,
    IcepopSettings,
    JudgeSettings,
    MisSettings,
    OverlongSettings,
    PolicyGradientSettings,
    PolicyLossSettings,
    TisSettings,
)

SLIME_API = "1"
JUDGE_S = 300.0
"""Timeout of a judge in seconds, including its wait for other requests."""


@hookimpl
def slime_advantages() -> Iterable[AdvantageSpec]:
    """From rewards to advantages."""
    return estimators()


@hookimpl
def slime_losses() -> Iterable[LossSpec]:
    """Policy gradients, and plain likelihood."""
    yield LossSpec(
        "policy_loss",
        lambda settings, setup: resolve_name("slime_train.losses:PolicyLoss")(settings),
        PolicyLossSettings,
        "Clipped policy gradient, asymmetric and dual clip",
        zero_without_advantage=_adds_no_entropy,
        flat_keys=tuple(PolicyLossSettings.model_fields),
    )
    yield LossSpec(
        "gspo",
        lambda settings, setup: resolve_name("slime_train.losses:GspoLoss")(settings),
        GspoSettings,
        "Clipped policy gradient with one ratio per sample (GSPO)",
        zero_without_advantage=_adds_no_entropy,
        flat_keys=tuple(GspoSettings.model_fields),
        estimator="grpo",
    )
    yield LossSpec(
        "cispo",
        lambda settings, setup: resolve_name("slime_train.losses:CispoLoss")(settings),
        CispoSettings,
        "Log-likelihood weighed by advantage and clipped ratio (CISPO)",
        zero_without_advantage=_adds_no_entropy,
        flat_keys=tuple(CispoSettings.model_fields),
        estimator="grpo",
    )
    yield LossSpec(
        "sft_loss",
        lambda settings, setup: resolve_name("slime_train.losses:SftLoss")(),
        summary="Negative log-likelihood of the response",
        uses_advantages=False,
    )


def _adds_no_entropy(settings: Settings) -> bool:
    return cast(PolicyGradientSettings, settings).entropy_coef == 0.0


@hookimpl
def slime_corrections() -> Iterable[CorrectionSpec]:
    """Importance sampling of several kinds."""
    yield CorrectionSpec(
        "tis",
        lambda settings, setup: resolve_name("slime_train.corrections:Tis")(settings),
        TisSettings,
        "Importance weights of tokens, truncated (TIS)",
        flat_keys=tuple(TisSettings.model_fields),
    )
    yield CorrectionSpec(
        "icepop",
        lambda settings, setup: resolve_name("slime_train.corrections:Icepop")(settings),
        IcepopSettings,
        "Importance weights of tokens, 0 out of bounds (IcePop)",
        flat_keys=tuple(IcepopSettings.model_fields),
    )
    yield CorrectionSpec(
        "mis",
        lambda settings, setup: resolve_name("slime_train.corrections:Mis")(settings),
        MisSettings,
        "Importance weights of tokens or samples: truncated, clipped or rejected; veto (MIS)",
    )


@hookimpl
def slime_rewards() -> Iterable[RewardSpec]:
    """A served model as judge."""
    yield RewardSpec(
        "served_judge",
        lambda settings, setup: resolve_name("slime_train.judge:Judge")(settings, setup),
        JudgeSettings,
        "Score from a model that the run serves next to the policy",
        isolation=Isolation.LOOP,
        timeout_s=JUDGE_S,
        models=lambda settings: (cast(JudgeSettings, settings).model,),
    )


@hookimpl
def slime_group_filters() -> Iterable[GroupFilterSpec]:
    """Dynamic sampling."""
    yield GroupFilterSpec(
        "nonzero_std",
        lambda settings, setup: resolve_name("slime_train.filters:nonzero_std"),
        summary="Keep groups whose rewards differ",
    )
    yield GroupFilterSpec(
        "nonzero_std_with_fallback",
        lambda settings, setup: resolve_name("slime_train.filters:nonzero_std_with_fallback"),
        summary="The same, unless the rollout comes up short",
    )


@hookimpl
def slime_sample_filters() -> Iterable[SampleFilterSpec]:
    """Removes truncated responses."""
    yield SampleFilterSpec(
        "truncated",
        lambda settings, setup: resolve_name("slime_train.filters:truncated"),
        summary="Exclude truncated responses from training (DAPO)",
    )


@hookimpl
def slime_reward_shapers() -> Iterable[RewardShaperSpec]:
    """Penalties independent of the reward."""
    yield RewardShaperSpec(
        "overlong",
        lambda settings, setup: resolve_name("slime_train.overlong:Overlong")(settings),
        OverlongSettings,
        "A penalty that grows over the last tokens of the budget (DAPO)",
    )


@hookimpl
def slime_transports() -> Iterable[TransportSpec]:
    """Files, in memory and on disk."""
    yield TransportSpec(
        "shared-buffer",
        lambda settings, setup: resolve_name("slime_train.shared_buffer:SharedBuffer")(settings, setup),
        summary="Two files that ranks and engines map; one machine",
        one_machine=True,
    )
    yield TransportSpec(
        "disk",
        lambda settings, setup: resolve_name("slime_train.disk:Disk")(settings, setup),
        DiskSettings,
        "A safetensors file a version, in a folder that all machines see",
    )
