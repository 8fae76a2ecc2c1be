"""The policies on a virtual clock: what each costs in idle engines, and what none may do."""

from dataclasses import replace

import pytest

from slime_simulate import Figures, FleetShape, Lengths, Scenario, simulate

SMALL = Scenario(
    fleet=FleetShape(engines=8, slots=4), lengths=Lengths(sigma=0.5), batch=40, n_samples_per_prompt=4, steps=4
)


@pytest.fixture(scope="module")
def figures() -> dict[str, Figures]:
    scenarios = {
        "sync": replace(SMALL, rollout_policy="sync"),
        "async": replace(SMALL, rollout_policy="async"),
        "partial": replace(SMALL, rollout_policy="sync", partial_rollout=True),
        "continuous": SMALL,
    }
    return {name: simulate(scenario) for name, scenario in scenarios.items()}


def test_generating_on_keeps_the_engines_busier(figures: dict[str, Figures]) -> None:
    assert figures["sync"].utilisation < figures["async"].utilisation < figures["continuous"].utilisation
    assert figures["sync"].utilisation < figures["partial"].utilisation


def test_nothing_is_thrown_away_and_nothing_is_too_old(figures: dict[str, Figures]) -> None:
    assert {each.discarded for each in figures.values()} == {0.0}
    most = {name: each.max_staleness for name, each in figures.items()}
    assert most["sync"] == 0
    assert most["async"] == 1
    assert max(most.values()) <= SMALL.max_staleness


def test_what_is_trained_is_as_long_as_what_is_generated(figures: dict[str, Figures]) -> None:
    assert figures["continuous"].length_bias == pytest.approx(0.0, abs=0.02)


def test_one_scenario_has_one_outcome() -> None:
    first, second = simulate(SMALL), simulate(SMALL)
    assert replace(first, us_per_event=0) == replace(second, us_per_event=0)
