"""Settings of training: specs, schedules, limits."""

import math
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from slime_core.roles import AdvantageSpec, LossSpec, Optim, Settings, Setup, Spec
from slime_train.corrections import Icepop, Mis, Tis
from slime_train.estimators import estimators
from slime_train.estimators.gdpo import Gdpo, GdpoSettings
from slime_train.estimators.gpg import Gpg
from slime_train.estimators.grpo import Grpo, GrpoSettings
from slime_train.estimators.max_rl import MaxRl
from slime_train.estimators.ppo import Ppo, PpoSettings
from slime_train.estimators.reinforce_plus_plus import ReinforcePlusPlus, ReinforcePlusPlusSettings
from slime_train.estimators.reinforce_plus_plus_baseline import (
    ReinforcePlusPlusBaseline,
    ReinforcePlusPlusBaselineSettings,
)
from slime_train.estimators.rloo import Rloo
from slime_train.losses import CispoLoss, GspoLoss, PolicyLoss, SftLoss
from slime_train.normalization import EstimatorSettings
from slime_train.plugin import slime_corrections, slime_losses
from slime_train.schedule import learning_rate
from slime_train.settings import (
    CispoSettings,
    GspoSettings,
    IcepopSettings,
    MisSettings,
    OverlongSettings,
    PolicyLossSettings,
    TisSettings,
)
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


# What the core offers of the tensor roles: every choice builds its class from its settings and says what it needs.

GDPO = GdpoSettings(reward_weights={"math": 1.0, "form": 0.5})
ADVANTAGES: list[tuple[str, type[object], Settings, bool, tuple[str, ...], bool]] = [
    ("grpo", Grpo, GrpoSettings(grpo_std_normalization=False), False, (), False),
    ("gdpo", Gdpo, GDPO, False, ("math", "form"), False),
    ("rloo", Rloo, EstimatorSettings(), False, (), False),
    ("max_rl", MaxRl, EstimatorSettings(normalize_advantages=True), False, (), False),
    ("gpg", Gpg, Settings(), False, (), False),
    ("reinforce_plus_plus", ReinforcePlusPlus, ReinforcePlusPlusSettings(gamma=0.5), True, (), False),
    (
        "reinforce_plus_plus_baseline",
        ReinforcePlusPlusBaseline,
        ReinforcePlusPlusBaselineSettings(),
        True,
        (),
        False,
    ),
    ("ppo", Ppo, PpoSettings(lambd=0.5), True, (), True),
]
LOSSES: list[tuple[str, type[object], Settings, bool]] = [
    ("policy_loss", PolicyLoss, PolicyLossSettings(eps_clip=0.1), True),
    ("gspo", GspoLoss, GspoSettings(eps_clip=0.1, eps_clip_high=0.2), True),
    ("cispo", CispoLoss, CispoSettings(eps_clip=0.1), True),
    ("sft_loss", SftLoss, Settings(), False),
]
CORRECTIONS: list[tuple[str, type[object], Settings]] = [
    ("tis", Tis, TisSettings(tis_clip=3.0)),
    ("icepop", Icepop, IcepopSettings(tis_clip=3.0)),
    ("mis", Mis, MisSettings(mis_upper_bound=3.0)),
]


def nothing(role: str, name: str, **settings: object) -> object:
    raise LookupError(name)


def assert_offered(spec: Spec[object], name: str, kind: type[object], settings: Settings) -> None:
    assert (spec.name, spec.settings) == (name, type(settings))
    built = spec.factory(settings, Setup(nothing, 0))
    assert type(built) is kind
    if vars(built):
        assert list(vars(built).values()) == [settings]


def test_every_estimator_says_what_it_reads() -> None:
    found = {spec.name: spec for spec in estimators()}
    assert all(type(spec) is AdvantageSpec for spec in found.values())
    for name, kind, settings, uses_kl, keys, uses_values in ADVANTAGES:
        spec = found[name]
        assert_offered(spec, name, kind, settings)
        assert (spec.uses_kl_penalty, spec.uses_values) == (uses_kl, uses_values)
        assert tuple(spec.reward_keys(settings)) == keys
        assert spec.compares_samples(settings) is (name in ("grpo", "gdpo", "rloo", "max_rl", "gpg"))
    assert not found["grpo"].compares_samples(GrpoSettings(rewards_normalization=False))


def test_every_loss_says_whether_advantages_are_all_it_learns_from() -> None:
    found = list(slime_losses())
    assert all(type(spec) is LossSpec for spec in found)
    for spec, (name, kind, settings, uses_advantages) in zip(found, LOSSES, strict=True):
        assert_offered(spec, name, kind, settings)
        assert spec.uses_advantages is uses_advantages
        assert spec.zero_without_advantage(settings) is uses_advantages
        if uses_advantages:
            assert spec.zero_without_advantage(settings.model_copy(update={"entropy_coef": 1e-3})) is False


def test_every_correction_is_built_from_its_settings() -> None:
    for spec, (name, kind, settings) in zip(slime_corrections(), CORRECTIONS, strict=True):
        assert_offered(spec, name, kind, settings)


# The learning rate of each step.

OPTIM = Optim(
    lr=2.0,
    lr_warmup_iters=4,
    lr_decay_style="constant",
    min_lr=0.5,
    adam_beta1=0.9,
    adam_beta2=0.95,
    adam_eps=1e-8,
    weight_decay=0.0,
    clip_grad=1.0,
    train_steps=15,
)


def rates(**changes: object) -> list[float]:
    optim = replace(OPTIM, **changes)  # type: ignore[arg-type]
    return [learning_rate(optim, step) for step in range(optim.train_steps)]


@table("style", ["constant", "linear", "cosine"])
def test_warm_up_rises_to_the_peak_and_no_step_is_wasted(style: str) -> None:
    assert rates(lr_decay_style=style)[:5] == [0.5, 1.0, 1.5, 2.0, 2.0]


@table(
    "changes, after_warm_up",
    [
        ({}, [2.0] * 11),
        ({"lr_decay_style": "linear"}, [2.0 - 0.15 * step for step in range(11)]),
        ({"lr_decay_style": "linear", "lr_decay_iters": 10}, [*(2.0 - 0.3 * step for step in range(6)), *[0.5] * 5]),
        ({"lr_decay_style": "cosine"}, [1.25 + 0.75 * math.cos(math.pi * step / 10) for step in range(11)]),
        ({"lr_decay_style": "inverse-square-root"}, [2.0 * math.sqrt(4 / step) for step in range(4, 15)]),
        ({"lr_decay_style": "WSD", "lr_wsd_decay_style": "linear"}, [2.0] * 11),
    ],
)
def test_each_style_falls_by_its_formula(changes: dict[str, object], after_warm_up: list[float]) -> None:
    assert rates(**changes)[4:] == pytest.approx(after_warm_up)


def test_inverse_square_root_stops_at_the_minimum_and_needs_no_warm_up() -> None:
    assert learning_rate(OPTIM, 10_000) == 2.0
    assert learning_rate(replace(OPTIM, lr_decay_style="inverse-square-root"), 65) == 0.5
    assert rates(lr_decay_style="inverse-square-root", lr_warmup_iters=0)[:2] == [2.0, 2.0]


@table("style", ["linear", "cosine"])
@table("warmup", [0, 4])
@table("after", [1, 2, 3, 10])
def test_the_minimum_is_reached_by_the_last_step_and_not_before(style: str, warmup: int, after: int) -> None:
    """However few steps the decay has: step `warmup` is at the peak."""
    found = rates(lr_decay_style=style, lr_warmup_iters=warmup, train_steps=warmup + 1 + after)[warmup:]
    assert found[0] == 2.0
    assert found[-1] == pytest.approx(0.5)
    assert all(rate > 0.5 + 1e-6 for rate in found[:-1])


@table(
    "shape, half_way",
    [("linear", 0.5), ("cosine", 0.5), ("exponential", 2 * 0.5**0.5 - 1), ("minus_sqrt", 1 - 0.5**0.5)],
)
def test_wsd_stays_at_the_peak_and_decays_in_its_last_steps(shape: str, half_way: float) -> None:
    found = rates(lr_decay_style="WSD", lr_wsd_decay_iters=6, lr_wsd_decay_style=shape)
    assert found[3:9] == [2.0] * 6
    assert found[11] == pytest.approx(0.5 + 1.5 * half_way)
    assert found[14] == pytest.approx(0.5)
