"""Corrections against references written as loops, and what a rank refuses from its tensor roles."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from slime_core.errors import ContractError
from slime_core.roles import Correction, CorrectionInput, CorrectionOutput, LossOutput
from slime_core.train.checks import check_advantages, check_correction, check_loss
from slime_core.train.corrections import Tis
from slime_core.train.settings import TisSettings

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


def test_its_bounds_are_slimes_and_must_not_cross() -> None:
    assert (TisSettings().tis_clip, TisSettings().tis_clip_low) == (2.0, 0.0)
    with pytest.raises(ValidationError, match=r"tis_clip = 0.5 is below tis_clip_low = 0.9"):
        TisSettings(tis_clip=0.5, tis_clip_low=0.9)
    assert isinstance(Tis(TisSettings()), Correction)


MASK = torch.tensor([1.0, 0.0, 1.0])
ONES = torch.ones(3)


@pytest.mark.parametrize(
    ("returned", "says"),
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


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (ONES, "expected a LossOutput, got Tensor"),
        (LossOutput(torch.ones(())), r"loss_T: expected a float tensor of \[3\], got torch.float32 \[\]"),
        (LossOutput(ONES, {"k": 1.0}), "metric 'k': expected a float tensor of"),  # type: ignore[dict-item]
    ],
)
def test_a_loss_that_breaks_its_contract_is_refused(returned: object, says: str) -> None:
    with pytest.raises(ContractError, match=rf"^loss of plugin odd.*{says}"):
        check_loss(returned, plugin="odd", tokens=3)


@pytest.mark.parametrize(
    ("returned", "says"),
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


def test_what_keeps_the_contract_is_returned_as_it_is() -> None:
    loss, correction = LossOutput(ONES, {"k": ONES}), CorrectionOutput(ONES, MASK, {"k": ONES})
    assert check_loss(loss, plugin="odd", tokens=3) is loss
    assert check_correction(correction, plugin="odd", loss_mask_T=MASK) is correction
    assert check_advantages(ONES, plugin="odd", tokens=3) is ONES
