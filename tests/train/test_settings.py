"""Settings of estimators, losses and corrections: their defaults, and of every number how far it may go."""

from typing import Any

import pytest
from pydantic import ValidationError

from slime_core.batching.prepare import OverlongSettings
from slime_core.roles import Settings
from slime_train.estimators.gdpo import GdpoSettings
from slime_train.estimators.grpo import GrpoSettings
from slime_train.estimators.ppo import PpoSettings
from slime_train.estimators.reinforce_plus_plus import ReinforcePlusPlusSettings
from slime_train.estimators.reinforce_plus_plus_baseline import ReinforcePlusPlusBaselineSettings
from slime_train.settings import (
    CispoSettings,
    GspoSettings,
    IcepopSettings,
    MisSettings,
    PolicyLossSettings,
    TisSettings,
)
from slime_train.whitened import EstimatorSettings
from tests.tables import table

SHARED = {"entropy_coef": 0.0, "use_opsm": False, "opsm_delta": 1e-4}
GRPO = {"rewards_normalization": True, "grpo_std_normalization": True, "scale_rewards": "group"}
MIS = {"mis_lower_bound": None, "mis_upper_bound": 2.0, "mis_veto_threshold": None, "rollout_rs": {}}
DEFAULTS: list[tuple[type[Settings], dict[str, object]]] = [
    (EstimatorSettings, {"normalize_advantages": False}),
    (GrpoSettings, {"normalize_advantages": False, **GRPO}),
    (ReinforcePlusPlusBaselineSettings, {"normalize_advantages": True}),
    (ReinforcePlusPlusSettings, {"normalize_advantages": True, "gamma": 1.0}),
    (PpoSettings, {"normalize_advantages": True, "gamma": 1.0, "lambd": 1.0}),
    (PolicyLossSettings, {**SHARED, "eps_clip": 0.2, "eps_clip_high": None, "eps_clip_c": None}),
    (GspoSettings, {**SHARED, "eps_clip": 3e-4, "eps_clip_high": 4e-4, "eps_clip_c": None}),
    (CispoSettings, {**SHARED, "eps_clip": 0.2, "eps_clip_high": None}),
    (TisSettings, {"tis_clip": 2.0, "tis_clip_low": 0.0}),
    (IcepopSettings, {"tis_clip": 5.0, "tis_clip_low": 0.5}),
    (MisSettings, {"mis_level": "token", "mis_mode": "truncate", **MIS}),
]


@table("kind, values", DEFAULTS)
def test_what_is_not_set_has_its_documented_default(kind: type[Settings], values: dict[str, object]) -> None:
    assert kind().model_dump() == values


OVERLONG = ("max_response_len", "overlong_buffer_len")


def test_what_has_no_default_must_be_given() -> None:
    for key in OVERLONG:
        with pytest.raises(ValidationError, match=rf"{key}\n  Field required"):
            OverlongSettings.model_validate({other: 9 for other in OVERLONG if other != key})
    made = OverlongSettings(max_response_len=9, overlong_buffer_len=8)
    assert made.model_dump() == {"max_response_len": 9, "overlong_buffer_len": 8, "overlong_penalty_factor": 1.0}
    with pytest.raises(ValidationError, match=r"reward_weights\n  Field required"):
        GdpoSettings.model_validate({})
    with pytest.raises(ValidationError, match="at least 1 item"):
        GdpoSettings(reward_weights={})
    weights = {"math": 1.0}
    assert GdpoSettings(reward_weights=weights).model_dump() == {
        "reward_weights": weights,
        "normalize_advantages": True,
    }


NOTHING: dict[str, Any] = {}
MASK, CLIP = {"mis_mode": "mask"}, {"mis_mode": "clip"}
Refused = list[tuple[float, str]]
ABOVE_0: Refused = [(0, "greater than 0")]
NOT_BELOW_0: Refused = [(-1e-9, "greater than or equal to 0")]
NOT_BELOW_1: Refused = [(0, "greater than or equal to 1")]
INSIDE: Refused = [*ABOVE_0, (1, "less than 1")]
NOT_ABOVE_1 = (1 + 1e-9, "less than or equal to 1")
SMALL, LARGE = 1e-9, 1 - 1e-9
FACTOR = "overlong_penalty_factor"
RANGES: list[tuple[type[Settings], str, dict[str, Any], Refused, list[float]]] = [
    (ReinforcePlusPlusSettings, "gamma", NOTHING, [*NOT_BELOW_0, NOT_ABOVE_1], [0, 1]),
    *((PpoSettings, key, NOTHING, [*NOT_BELOW_0, NOT_ABOVE_1], [0, 1]) for key in ("gamma", "lambd")),
    (OverlongSettings, "max_response_len", {"overlong_buffer_len": 1}, NOT_BELOW_1, [1, 9]),
    (OverlongSettings, "overlong_buffer_len", {"max_response_len": 9}, NOT_BELOW_1, [1, 9]),
    (OverlongSettings, FACTOR, {"max_response_len": 9, "overlong_buffer_len": 1}, ABOVE_0, [SMALL, 9]),
    (PolicyLossSettings, "entropy_coef", NOTHING, NOT_BELOW_0, [0, SMALL, 9]),
    (PolicyLossSettings, "opsm_delta", {"use_opsm": True}, NOT_BELOW_0, [0, 1e-4, 9]),
    (PolicyLossSettings, "eps_clip", NOTHING, INSIDE, [SMALL, LARGE]),
    (PolicyLossSettings, "eps_clip_high", {"eps_clip": SMALL}, ABOVE_0, [SMALL, 9]),
    (PolicyLossSettings, "eps_clip_c", NOTHING, [(1, "greater than 1")], [1 + 1e-9, 9]),
    (GspoSettings, "eps_clip", {"eps_clip_high": 1}, INSIDE, [SMALL, LARGE]),
    (GspoSettings, "eps_clip_high", {"eps_clip": SMALL}, ABOVE_0, [SMALL, 9]),
    (CispoSettings, "eps_clip", NOTHING, [*ABOVE_0, NOT_ABOVE_1], [SMALL, 1]),
    (CispoSettings, "eps_clip_high", NOTHING, ABOVE_0, [SMALL, 9]),
    (TisSettings, "tis_clip", NOTHING, ABOVE_0, [SMALL, 9]),
    (TisSettings, "tis_clip_low", NOTHING, NOT_BELOW_0, [0, SMALL, 2]),
    (IcepopSettings, "tis_clip", {"tis_clip_low": 0}, ABOVE_0, [SMALL, 9]),
    (IcepopSettings, "tis_clip_low", NOTHING, NOT_BELOW_0, [0, SMALL, 5]),
    (MisSettings, "mis_lower_bound", MASK, ABOVE_0, [SMALL, 1.9]),
    (MisSettings, "mis_upper_bound", NOTHING, ABOVE_0, [SMALL, 0.5, 9]),
    (MisSettings, "mis_veto_threshold", NOTHING, INSIDE, [SMALL, LARGE]),
]


@table("kind, key, others, refused, accepted", RANGES)
def test_a_number_is_taken_up_to_its_bounds_and_no_further(
    kind: type[Settings],
    key: str,
    others: dict[str, Any],
    refused: list[tuple[float, str]],
    accepted: list[float],
) -> None:
    for value, says in refused:
        with pytest.raises(ValidationError, match=rf"{key}\n.*{says} "):
            kind.model_validate({key: value, **others})
    for value in accepted:
        assert getattr(kind.model_validate({key: value, **others}), key) == value


@table("kind", [PolicyLossSettings, GspoSettings])
def test_the_upper_clip_is_the_lower_one_unless_it_is_given(kind: type[PolicyLossSettings | GspoSettings]) -> None:
    assert kind(eps_clip=0.3, eps_clip_high=None).high == 0.3
    assert kind(eps_clip=0.3, eps_clip_high=0.3).high == 0.3
    assert kind(eps_clip=0.3, eps_clip_high=0.4).high == 0.4
    with pytest.raises(ValidationError, match=r"eps_clip_high = 0\.2 is below eps_clip = 0\.3"):
        kind(eps_clip=0.3, eps_clip_high=0.2)


def test_cispo_may_rise_less_than_it_falls() -> None:
    assert CispoSettings(eps_clip=0.3).high == 0.3
    assert CispoSettings(eps_clip=0.3, eps_clip_high=0.1).high == 0.1


@table("kind", [PolicyLossSettings, GspoSettings, CispoSettings])
def test_a_drift_is_looked_at_with_use_opsm_alone(kind: type[PolicyLossSettings]) -> None:
    with pytest.raises(ValidationError, match=r"opsm_delta = 0\.5 has no effect here: set use_opsm = true"):
        kind(opsm_delta=0.5)
    assert kind(use_opsm=True, opsm_delta=0.5).opsm_delta == 0.5
    assert not kind(opsm_delta=1e-4).use_opsm


@table("kind", [TisSettings, IcepopSettings])
def test_bounds_of_a_weight_may_meet_but_not_cross(kind: type[TisSettings | IcepopSettings]) -> None:
    assert kind(tis_clip=0.7, tis_clip_low=0.7).tis_clip == 0.7
    with pytest.raises(ValidationError, match=r"tis_clip = 0\.6 is below tis_clip_low = 0\.7"):
        kind(tis_clip=0.6, tis_clip_low=0.7)


@table("others", [MASK, CLIP])
def test_the_lower_bound_of_a_ratio_mirrors_the_upper_one_unless_it_is_given(others: dict[str, Any]) -> None:
    assert MisSettings(mis_upper_bound=4.0, **others).lower == 0.25
    assert MisSettings(mis_upper_bound=4.0, mis_lower_bound=0.5, **others).lower == 0.5
    for upper, lower in ((1.0, None), (0.5, None), (2.0, 2.0), (2.0, 3.0)):
        with pytest.raises(ValidationError, match=rf"mis_upper_bound = {upper} is not above the lower bound, "):
            MisSettings(mis_upper_bound=upper, mis_lower_bound=lower, **others)


def test_truncation_knows_no_lower_bound() -> None:
    with pytest.raises(ValidationError, match=r'mis_lower_bound = 0\.5 has no effect here: set mis_mode = "clip" or'):
        MisSettings(mis_lower_bound=0.5)
    assert MisSettings(mis_upper_bound=0.5).mis_upper_bound == 0.5
