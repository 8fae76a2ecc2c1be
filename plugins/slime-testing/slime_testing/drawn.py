"""for_any_groups: held groups that hypothesis makes up, of all sizes, ages and rewards. Imported where it is used."""

from collections.abc import Callable, Sequence

from hypothesis import HealthCheck, Verbosity, given, settings
from hypothesis import strategies as st

from slime_core.sample import Group
from slime_testing.samples import make_group

FIRST_DRAW = 1_000
"""No draw is a position among the groups that are held."""
EXAMPLES = 60
"""Situations that a check tries."""
_REWARDS = st.lists(st.sampled_from((None, -1.0, 0.0, 1e-30, 0.5, 1.0, 1e9)), min_size=1, max_size=4)
_GROUPS = st.lists(st.tuples(_REWARDS, st.integers(0, 12)), max_size=12)


def for_any_groups(act: Callable[[Sequence[Group], int], None]) -> None:
    """Call `act(groups, want)` with many different held groups and wanted counts; the same ones every time.

    Raises:
        Exception: what `act` raised for the smallest situation that was found.
    """

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
    @given(_GROUPS, st.integers(0, 16))
    def run(drawn: list[tuple[list[float | None], int]], want: int) -> None:
        act([_group(FIRST_DRAW + number, *each) for number, each in enumerate(drawn)], want)

    run()


def _group(draw: int, rewards: Sequence[float | None], version: int) -> Group:
    group = make_group(draw, rewards=[0.0] * len(rewards), weight_version=version)
    for sample, reward in zip(group.samples, rewards, strict=True):
        sample.reward = reward
    return group
