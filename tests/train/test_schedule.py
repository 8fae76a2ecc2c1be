"""The learning rate of each step."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.roles import Optim
from slime_train.schedule import learning_rate
from tests.tables import table

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


def test_constant_stays() -> None:
    assert set(rates()[4:]) == {2.0}
    assert learning_rate(OPTIM, 10_000) == 2.0


def test_linear_falls_evenly_to_the_minimum_at_the_last_step() -> None:
    assert rates(lr_decay_style="linear")[4:] == pytest.approx([2.0 - 0.15 * step for step in range(11)])


def test_cosine_is_half_way_at_half_time() -> None:
    found = rates(lr_decay_style="cosine")[4:]
    assert found == pytest.approx([1.25 + 0.75 * math.cos(math.pi * step / 10) for step in range(11)])


@table("style", ["linear", "cosine"])
@table("warmup", [0, 4])
@table("after", [1, 2, 3, 10])
def test_the_minimum_is_reached_by_the_last_step_and_not_before(style: str, warmup: int, after: int) -> None:
    """However few steps the decay has: step `warmup` is at the peak."""
    found = rates(lr_decay_style=style, lr_warmup_iters=warmup, train_steps=warmup + 1 + after)[warmup:]
    assert found[0] == 2.0
    assert found[-1] == pytest.approx(0.5)
    assert all(rate > 0.5 + 1e-6 for rate in found[:-1])


def test_the_decay_ends_after_its_own_steps_if_it_has_some() -> None:
    found = rates(lr_decay_style="linear", lr_decay_iters=10)
    assert found[4:10] == pytest.approx([2.0 - 0.3 * step for step in range(6)])
    assert found[10:] == [0.5] * 5


def test_inverse_square_root_goes_on_from_the_warm_up_and_stops_at_the_minimum() -> None:
    assert rates(lr_decay_style="inverse-square-root")[4:] == pytest.approx(
        [2.0 * math.sqrt(4 / step) for step in range(4, 15)]
    )
    assert learning_rate(replace(OPTIM, lr_decay_style="inverse-square-root"), 65) == 0.5
    assert rates(lr_decay_style="inverse-square-root", lr_warmup_iters=0)[:2] == [2.0, 2.0]


@table(
    "shape, half_way",
    [("linear", 0.5), ("cosine", 0.5), ("exponential", 2 * 0.5**0.5 - 1), ("minus_sqrt", 1 - 0.5**0.5)],
)
def test_wsd_stays_at_the_peak_and_decays_in_its_last_steps(shape: str, half_way: float) -> None:
    found = rates(lr_decay_style="WSD", lr_wsd_decay_iters=6, lr_wsd_decay_style=shape)
    assert found[3:9] == [2.0] * 6
    assert found[11] == pytest.approx(0.5 + 1.5 * half_way)
    assert found[14] == pytest.approx(0.5)


def test_wsd_without_steps_of_decay_stays_at_the_peak_to_the_end() -> None:
    assert rates(lr_decay_style="WSD", lr_wsd_decay_style="linear")[3:] == [2.0] * 12


@given(
    style=st.sampled_from(["constant", "linear", "cosine", "inverse-square-root", "WSD"]),
    warmup=st.integers(0, 20),
    steps=st.integers(1, 40),
)
def test_it_stays_in_bounds_and_falls_after_warm_up(style: str, warmup: int, steps: int) -> None:
    optim = replace(OPTIM, lr_decay_style=style, lr_warmup_iters=warmup, train_steps=steps, lr_wsd_decay_iters=5)
    found = [learning_rate(optim, step) for step in range(steps + 5)]
    after = found[warmup:]
    assert all(0 < rate <= 2.0 for rate in found)
    assert all(rate >= 0.5 for rate in after)
    assert after == sorted(after, reverse=True)
