"""Rejection by a divergence against loops in float64, beside weights and alone; and bounds that cannot be meant."""

import math
from typing import get_args

import pytest
from hypothesis import assume, given
from hypothesis import settings as profile
from pydantic import ValidationError

from slime_train.corrections import Mis, within
from slime_train.settings import Divergence, MisSettings
from tests.tables import table
from tests.train.test_corrections import SAMPLES, of_samples

NAMES: tuple[Divergence, ...] = get_args(Divergence)
BOUNDS = {"k1": (0.5, 1.6), "k2": (0.0, 0.4), "k3": (0.0, 0.3)}
Samples = list[list[tuple[float, float, int]]]


def measured(name: str, samples: Samples) -> list[float]:
    """The divergence of each token, or of its sample."""
    level, kind = name[: name.rindex("_")], name[-2:]

    def of(apart: float) -> float:
        apart = min(max(apart, -20.0), 20.0)
        return {"k1": apart, "k2": apart**2 / 2, "k3": math.exp(apart) - 1 - apart}[kind]

    found = []
    for tokens in samples:
        trained = [of(new - rollout) for new, rollout, mask in tokens if mask]
        for new, rollout, _ in tokens:
            value = {
                "token": of(new - rollout),
                "seq_sum": math.fsum(trained),
                "seq_mean": math.fsum(trained) / max(1, len(trained)),
                "seq_max": max(trained, default=0.0),
            }[level]
            found.append(math.exp(min(max(value, -20.0), 20.0)) if kind == "k1" else value)
    return found


@table("name", NAMES)
@profile(max_examples=40)
@given(samples=SAMPLES)
def test_each_divergence_is_its_formula(name: Divergence, samples: Samples) -> None:
    low, high = BOUNDS[name[-2:]]
    values = measured(name, samples)
    assume(all(abs(value - bound) > 1e-9 for value in values for bound in (low, high) if bound))
    found = within(of_samples(samples), {name: (low, high)})
    assert found.tolist() == [float(value <= high and (value >= low or not low)) for value in values]


@profile(max_examples=40)
@given(samples=SAMPLES)
def test_weights_of_tokens_stand_beside_a_rejection_of_samples(samples: Samples) -> None:
    """Truncated weights of tokens and bounds of the geometric mean: verl's Geo-RS-Token-TIS."""
    values = measured("seq_mean_k1", samples)
    assume(all(abs(value - bound) > 1e-9 for value in values for bound in (0.8, 1.25)))
    output = Mis(MisSettings(mis_upper_bound=1.5, rollout_rs={"seq_mean_k1": 1.25}))(of_samples(samples))
    tokens = [token for sample in samples for token in sample]
    weights = [min(math.exp(new - rollout), 1.5) for new, rollout, _ in tokens]
    kept = [float(0.8 <= value <= 1.25) for value in values]
    assert output.weights_T.tolist() == pytest.approx(weights, rel=1e-9)
    assert output.loss_mask_T.tolist() == [each * token[2] for each, token in zip(kept, tokens, strict=True)]
    assert output.metrics_T["rollout_rs_masked_fraction"].tolist() == [1 - each for each in kept]
    assert not output.metrics_T["mis_masked"].any()


def test_every_divergence_must_be_within_its_bounds() -> None:
    samples = [[(-1.0, -1.0, 1), (-1.0, -1.5, 1)], [(-1.0, -1.1, 1)], [(-1.0, -3.0, 1)]]
    settings = MisSettings(mis_mode="none", rollout_rs={"token_k1": (0.5, 1.2), "seq_max_k3": 1.0})
    output = Mis(settings)(of_samples(samples))  # type: ignore[arg-type]
    assert output.weights_T.tolist() == [1.0] * 4
    assert output.loss_mask_T.tolist() == [1.0, 0.0, 1.0, 0.0]


def test_rejection_alone_leaves_a_veto_what_it_is() -> None:
    settings = MisSettings(mis_mode="none", mis_veto_threshold=0.01)
    output = Mis(settings)(of_samples([[(-6.0, -1.0, 1), (-1.0, -1.0, 1)], [(-1.0, -1.0, 1)]]))
    assert output.loss_mask_T.tolist() == [0.0, 0.0, 1.0]
    assert "rollout_rs_masked_fraction" not in output.metrics_T


def test_of_no_token_there_is_nothing_to_reject() -> None:
    empty = of_samples([[]])
    for name in NAMES:
        assert within(empty, {name: BOUNDS[name[-2:]]}).shape == (0,)


def test_the_lower_bound_of_a_ratio_is_one_over_the_upper_unless_given() -> None:
    settings = MisSettings(rollout_rs={"token_k1": 4.0, "seq_sum_k1": (0.9, 3.0), "token_k2": 0.5})
    assert settings.rejection == {"token_k1": (0.25, 4.0), "seq_sum_k1": (0.9, 3.0), "token_k2": (0.0, 0.5)}
    assert MisSettings.model_validate(settings.model_dump(mode="json")) == settings


@table(
    "values, says",
    [
        ({"mis_mode": "none"}, "alone corrects nothing: give rollout_rs or mis_veto_threshold"),
        ({"mis_mode": "none", "rollout_rs": {"token_k2": 1}, "mis_level": "sequence"}, "mis_level = sequence has no"),
        ({"mis_mode": "none", "rollout_rs": {"token_k2": 1}, "mis_upper_bound": 3}, "mis_upper_bound = 3.0 has no"),
        ({"mis_mode": "none", "mis_veto_threshold": 0.1, "mis_lower_bound": 0.5}, "mis_lower_bound = 0.5 has no"),
        ({"rollout_rs": {"token_k2": (0.1, 0.2)}}, "give its upper bound alone, 0.2"),
        ({"rollout_rs": {"seq_mean_k1": 1.0}}, "seq_mean_k1 from 1 to 1 keeps nothing"),
        ({"rollout_rs": {"seq_mean_k1": (0.0, 2.0)}}, "bounds are of a ratio, around 1"),
        ({"rollout_rs": {"seq_sum_k1": 0}}, "keeps nothing"),
        ({"rollout_rs": {"seq_max_k3": -1}}, "bounds are above 0"),
        ({"rollout_rs": {"seq_max_k1": 2.0}}, "seq_max_k2"),
    ],
)
def test_what_would_do_nothing_or_reject_all_is_refused(values: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        MisSettings.model_validate(values)
