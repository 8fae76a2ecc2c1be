"""ServedWeights: what generated a rollout, in the order in which weights are published and trained."""

from slime_core.roles import OldActor
from slime_train import ServedWeights
from tests.tables import table


def trained(lag: int, interval: int, rollouts: int, *, resumed_at: int | None = None) -> list[int]:
    """Versions that generated each rollout; weights are published every so many, and when the run is resumed."""
    served, generated = ServedWeights[str](OldActor(lag)), list[int]()
    served.published(0, lambda: "weights 0")
    for rollout_id in range(rollouts):
        if rollout_id == resumed_at:
            saved, served = served.saved(), ServedWeights[str](OldActor(lag))
            if saved is not None:
                served.restore(*saved)
            served.published(rollout_id, lambda: f"weights {rollout_id}")  # noqa: B023  # called at once
        version, weights = served.of(rollout_id)
        assert weights == f"weights {version}"
        generated.append(version)
        done = rollout_id + 1
        if done % interval == 0:
            served.published(done, lambda: f"weights {done}")  # noqa: B023  # called at once
    return generated


@table(
    "lag, interval, generated",
    [
        (0, 1, [0, 1, 2, 3, 4, 5]),
        (0, 2, [0, 0, 2, 2, 4, 4]),
        (0, 3, [0, 0, 0, 3, 3, 3]),
        (1, 1, [0, 0, 1, 2, 3, 4]),
        (1, 2, [0, 0, 0, 2, 2, 4]),
        (1, 4, [0, 0, 0, 0, 0, 4]),
    ],
)
def test_a_rollout_is_of_what_was_served_when_it_began(lag: int, interval: int, generated: list[int]) -> None:
    assert trained(lag, interval, 6) == generated


@table("lag", [0, 1])
@table("at", [2, 4])
def test_a_resumed_run_is_of_the_same(lag: int, at: int) -> None:
    assert trained(lag, 2, 6, resumed_at=at) == trained(lag, 2, 6)


def test_a_version_that_is_sent_again_is_not_copied_again() -> None:
    served, copies = ServedWeights[int](OldActor(0)), iter((7, 8))
    for _ in range(2):
        served.published(3, lambda: next(copies))
    assert served.of(3) == (3, 7)
    assert served.saved() is None, "it is published again by itself"
