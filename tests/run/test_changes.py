"""Changes: which keys may be others when a run is continued, and how the rest is named."""

import re

from hypothesis import given
from hypothesis import strategies as st

from slime_core.config import OptimArgs, default_settings
from slime_core.run.resume import changed_settings, derived_changes
from slime_core.run.trainer import optim_of
from slime_core.sample import Json
from slime_train.schedule import learning_rate
from tests.tables import table

Values = dict[str, Json]
LR: Json = default_settings()["lr"]


@table(
    "before, now, expected",
    [
        (
            {"lr": 1e-3, "seed": 1, "top": "a"},
            {"lr": 1e-4, "seed": 2, "top": "a"},
            ["lr: 0.001 -> 0.0001", "seed: 1 -> 2"],
        ),
        ({"lr": LR}, {}, []),
        ({}, {"lr": LR}, []),
        ({}, {"lr": 0.5}, [f"lr: {LR!r} -> 0.5"]),
        ({"lr": 0.5}, {}, [f"lr: 0.5 -> {LR!r}"]),
        ({"of_old": 3}, {}, ["of_old: 3 -> None"]),
        ({}, {"of_new": 3}, ["of_new: None -> 3"]),
        *(
            ({key: 1}, {key: 2}, [])
            for key in ("save", "save_interval", "save_keep", "num_rollout", "step_timeout_s", "plugins")
        ),
    ],
)
def test_a_changed_key_is_named_with_both_values(before: Values, now: Values, expected: list[str]) -> None:
    assert changed_settings(before, now) == expected


STYLES = ("constant", "linear", "cosine", "inverse-square-root", "WSD")
lengths = st.integers(1, 12)


@st.composite
def keys(draw: st.DrawFn) -> dict[str, Json]:
    """Keys of the optimizer that a schedule is made of."""
    fraction, ends = draw(st.sampled_from([None, 0.1, 0.5])), draw(st.sampled_from([None, None, 4, 9]))
    style = draw(st.sampled_from(STYLES))
    return {
        "lr_decay_style": style,
        "lr_warmup_fraction": fraction,
        "lr_decay_iters": ends,
        "lr_wsd_decay_iters": 3 if style == "WSD" else None,
        "num_steps_per_rollout": draw(st.integers(1, 2)),
    }


def rates(keys: dict[str, Json], steps: int) -> list[float]:
    """The learning rate of each step that two runs have in common, and of later ones."""
    optim = optim_of(OptimArgs.model_validate(keys), steps)
    return [learning_rate(optim, step) for step in range(14)]


@given(keys(), lengths, lengths, st.sampled_from([None, 4, 9]))
def test_a_longer_run_has_the_same_learning_rates_or_says_that_it_has_not(
    keys: dict[str, Json], before: int, now: int, ends: int | None
) -> None:
    other = keys | ({} if ends is None else {"lr_decay_iters": ends})
    if not list(derived_changes(keys, other, before, now)):
        assert rates(keys, before) == rates(other, now)


@given(keys(), lengths, lengths)
def test_the_named_key_keeps_the_schedule(keys: dict[str, Json], before: int, now: int) -> None:
    for line in derived_changes(keys, keys, before, now):
        if named := re.search(r"--lr-decay-iters (\d+)", line):
            kept = keys | {"lr_decay_iters": int(named[1])}
            assert list(derived_changes(keys, kept, before, now)) == []
            assert rates(keys, before) == rates(kept, now)


def test_a_save_that_publishes_weights_is_a_change_and_others_are_not() -> None:
    rare: dict[str, Json] = {"update_weights_interval": 4}
    assert len(list(derived_changes(rare | {"save_interval": 2}, rare | {"save_interval": 3}, 5, 5))) == 1
    assert list(derived_changes({"save_interval": 2}, {"save_interval": 3}, 5, 5)) == []


def test_a_decay_that_the_critic_had_longer_cannot_be_named_as_a_key() -> None:
    """With `num_critic_only_steps` the policy's decay is shorter than the critic's; `lr_decay_iters` is both."""
    derived: dict[str, Json] = {"lr_decay_style": "linear", "num_critic_only_steps": 2}
    assert list(derived_changes(derived, derived, 9, 9)) == []
    assert len(list(derived_changes(derived, derived | {"lr_decay_iters": 9}, 9, 9))) == 1
