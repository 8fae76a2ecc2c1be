"""Corrections of the distance between trainer and sampler, and what they reject."""

import math
from collections.abc import Iterator
from typing import get_args

import pytest
import torch
from hypothesis import assume, given
from hypothesis import settings as profile
from hypothesis import strategies as st
from pydantic import ValidationError

from slime_core.errors import ContractError
from slime_core.roles import CorrectionInput, CorrectionOutput, LossOutput
from slime_train.checks import check_advantages, check_correction, check_loss
from slime_train.corrections import Icepop, Mis, Tis, within
from slime_train.settings import Divergence, IcepopSettings, MisSettings, TisSettings
from tests.tables import table

LOG_PROB = st.floats(-8, -0.01)
TOKENS = st.lists(st.tuples(LOG_PROB, LOG_PROB, st.sampled_from([0.0, 1.0])), min_size=1, max_size=12)


def given_tokens(tokens: list[tuple[float, float, float]]) -> CorrectionInput:
    new, rollout, mask = (torch.tensor(each, dtype=torch.float64) for each in zip(*tokens, strict=True))
    return CorrectionInput(new, rollout, mask, torch.zeros(len(tokens), dtype=torch.int64))


@given(tokens=TOKENS, low=st.sampled_from([0.0, 0.5]), high=st.sampled_from([1.0, 2.0]))
def test_tis_is_the_formula(tokens: list[tuple[float, float, float]], low: float, high: float) -> None:
    output = Tis(TisSettings(tis_clip=high, tis_clip_low=low))(given_tokens(tokens))
    ratios = [math.exp(new - rollout) for new, rollout, _ in tokens]
    weights = [min(max(ratio, low), high) for ratio in ratios]
    assert output.weights_T.tolist() == pytest.approx(weights)
    assert output.loss_mask_T.tolist() == [mask for _, _, mask in tokens]
    assert output.metrics_T["tis"].tolist() == pytest.approx(ratios)
    assert output.metrics_T["tis_abs"].tolist() == pytest.approx([abs(ratio - 1) for ratio in ratios])
    clipped = [float(ratio < low or ratio > high) for ratio in output.metrics_T["tis"].tolist()]
    assert output.metrics_T["tis_clipfrac"].tolist() == clipped


SAMPLES = st.lists(st.lists(st.tuples(LOG_PROB, LOG_PROB, st.integers(0, 1)), max_size=5), min_size=1, max_size=4)
MIS = [
    MisSettings(mis_level=level, mis_mode=mode, mis_upper_bound=1.5, mis_veto_threshold=veto)  # type: ignore[arg-type]
    for level in ("token", "sequence", "geometric")
    for mode in ("truncate", "clip", "mask")
    for veto in (None, 0.2)
]


def of_samples(samples: list[list[tuple[float, float, int]]]) -> CorrectionInput:
    flat = [token for tokens in samples for token in tokens]
    new, rollout, mask = (torch.tensor([token[place] for token in flat], dtype=torch.float64) for place in range(3))
    index = torch.tensor([number for number, tokens in enumerate(samples) for _ in tokens], dtype=torch.int64)
    return CorrectionInput(new, rollout, mask, index)


def mis(tokens: list[tuple[float, float, int]], settings: MisSettings) -> Iterator[tuple[float, float, float]]:
    """Weight, mask and ratio of each token of a sample."""
    trained = [new - rollout for new, rollout, mask in tokens if mask]
    low = 1 / settings.mis_upper_bound if settings.mis_lower_bound is None else settings.mis_lower_bound
    vetoed = settings.mis_veto_threshold is not None and any(
        math.exp(each) < settings.mis_veto_threshold for each in trained
    )
    for new, rollout, mask in tokens:
        match settings.mis_level:
            case "token":
                log_ratio = new - rollout
            case "sequence":
                log_ratio = math.fsum(trained)
            case "geometric":
                log_ratio = math.fsum(trained) / max(1, len(trained))
        ratio = math.exp(min(max(log_ratio, -20.0), 20.0))
        weight, kept = ratio, 1
        match settings.mis_mode:
            case "truncate":
                weight = min(ratio, settings.mis_upper_bound)
            case "clip":
                weight = min(max(ratio, low), settings.mis_upper_bound)
            case "mask":
                kept = int(low <= ratio <= settings.mis_upper_bound)
        yield weight, float(mask and kept and not vetoed), ratio


@table("settings", MIS)
@profile(max_examples=40)
@given(samples=SAMPLES)
def test_mis_is_the_formula(settings: MisSettings, samples: list[list[tuple[float, float, int]]]) -> None:
    output = Mis(settings)(of_samples(samples))
    expected = [token for tokens in samples for token in mis(tokens, settings)]
    bounds = (settings.lower, settings.mis_upper_bound)
    assume(all(abs(ratio - bound) > 1e-9 for _, _, ratio in expected for bound in bounds))
    assert output.weights_T.tolist() == pytest.approx([weight for weight, _, _ in expected], rel=1e-9)
    assert output.loss_mask_T.tolist() == [mask for _, mask, _ in expected]
    assert output.metrics_T["tis"].tolist() == pytest.approx([ratio for _, _, ratio in expected], rel=1e-9)
    assert ("mis_vetoed" in output.metrics_T) is (settings.mis_veto_threshold is not None)


def test_a_ratio_at_the_veto_threshold_is_no_reason_for_a_veto() -> None:
    batch = of_samples([[(math.log(0.2), 0.0, 1)], [(math.log(0.2) - 1e-9, 0.0, 1)]])
    assert Mis(MisSettings(mis_veto_threshold=0.2))(batch).loss_mask_T.tolist() == [1.0, 0.0]


def test_a_ratio_at_a_bound_is_inside() -> None:
    batch = of_samples([[(-1.0, -1.0, 1)]])
    for bounds in ((0.5, 1.0), (1.0, 2.0)):
        assert Icepop(IcepopSettings(tis_clip_low=bounds[0], tis_clip=bounds[1]))(batch).weights_T.tolist() == [1.0]
        mask = MisSettings(mis_mode="mask", mis_lower_bound=bounds[0], mis_upper_bound=bounds[1])
        assert Mis(mask)(batch).loss_mask_T.tolist() == [1.0]


def test_the_product_over_a_long_sample_is_held_to_twenty_nats() -> None:
    clip = Mis(MisSettings(mis_level="sequence", mis_mode="clip", mis_upper_bound=1e9))
    far = clip(of_samples([[(-1.0, -31.0, 1)], [(-31.0, -1.0, 1)]]))
    assert far.weights_T.tolist() == pytest.approx([math.exp(20), math.exp(-20)], rel=1e-9)


def test_a_rejected_token_is_counted_apart_from_a_vetoed_one() -> None:
    output = Mis(MisSettings(mis_mode="mask"))(of_samples([[(-2.0, -1.0, 1), (-1.0, -1.0, 1), (-1.0, -1.6, 1)]]))
    assert output.loss_mask_T.tolist() == [0.0, 1.0, 1.0]
    assert output.metrics_T["mis_masked"].tolist() == [1.0, 0.0, 0.0]
    assert output.metrics_T["tis_clipfrac"].tolist() == [1.0, 0.0, 0.0]
    assert "mis_vetoed" not in output.metrics_T


@given(tokens=TOKENS)
def test_icepop_is_the_formula(tokens: list[tuple[float, float, float]]) -> None:
    output = Icepop(IcepopSettings(tis_clip=2.0, tis_clip_low=0.5))(given_tokens(tokens))
    ratios = output.metrics_T["tis"].tolist()
    assert ratios == pytest.approx([math.exp(new - rollout) for new, rollout, _ in tokens])
    assert output.weights_T.tolist() == [ratio if 0.5 <= ratio <= 2.0 else 0.0 for ratio in ratios]
    assert output.metrics_T["tis_clipfrac"].tolist() == [float(not 0.5 <= ratio <= 2.0) for ratio in ratios]
    assert output.loss_mask_T.tolist() == [mask for _, _, mask in tokens]


MASK = torch.tensor([1.0, 0.0, 1.0])
ONES = torch.ones(3)


@table(
    "returned, says",
    [
        (ONES, "expected a CorrectionOutput, got Tensor"),
        (
            CorrectionOutput(torch.ones(2), MASK),
            r"weights_T: expected a float tensor of \[3\], got torch.float32 \[2\]",
        ),
        (CorrectionOutput(-ONES, MASK), "weights_T: holds -1; weights are 0 or more"),
        (CorrectionOutput(ONES * math.nan, MASK), "weights_T: holds NaN or infinity"),
        (CorrectionOutput(ONES, MASK.bool()), r"loss_mask_T: expected a float tensor of \[3\], got torch.bool"),
        (CorrectionOutput(ONES, MASK / 2), "loss_mask_T: holds values other than 0 and 1"),
        (CorrectionOutput(ONES, ONES), "loss_mask_T: is 1 where it was 0; tokens are only taken out"),
        (CorrectionOutput(ONES, MASK, {"k": torch.ones(())}), "metric 'k': expected a float tensor"),
    ],
)
def test_a_correction_that_breaks_its_contract_is_refused(returned: object, says: str) -> None:
    with pytest.raises(ContractError, match=rf"^correction of plugin odd.*{says}"):
        check_correction(returned, plugin="odd", loss_mask_T=MASK)


@table(
    "returned, says",
    [
        (ONES, "expected a LossOutput, got Tensor"),
        (LossOutput(torch.ones(())), r"loss_T: expected a float tensor of \[3\], got torch.float32 \[\]"),
        (LossOutput(ONES, {"k": 1.0}), "metric 'k': expected a float tensor of"),  # type: ignore[dict-item]
        (LossOutput(ONES, {}, torch.ones(2)), r"regularizer_T: expected a float tensor of \[3\], got .* \[2\]"),
    ],
)
def test_a_loss_that_breaks_its_contract_is_refused(returned: object, says: str) -> None:
    with pytest.raises(ContractError, match=rf"^loss of plugin odd.*{says}"):
        check_loss(returned, plugin="odd", tokens=3)


@table(
    "returned, says",
    [
        ([0.0], r"expected a float tensor of \[3\], got list"),
        (torch.ones(3, 1), r"got torch.float32 \[3, 1\]; one number a response token"),
        (torch.ones(3, dtype=torch.int64), "got torch.int64"),
        (ONES / 0, "holds NaN or infinity"),
    ],
)
def test_advantages_that_break_their_contract_are_refused(returned: object, says: str) -> None:
    with pytest.raises(ContractError, match=rf"^advantage of plugin odd.*{says}"):
        check_advantages(returned, plugin="odd", tokens=3)


# Rejection by a divergence against loops in float64, beside weights and alone; and bounds that cannot be meant.

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
