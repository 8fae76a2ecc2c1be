"""Settings are refused before anything starts, and said in words that help."""

import pytest
from pydantic import ValidationError

from slime_buffer_priority import PrioritySettings


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"replay_ratio": 9.0}, "replay_ratio = 9 is out of reach with max_uses = 4: raise max_uses"),
        ({"quotas": {"math": 0.7, "code": 0.6}}, "sum to 1.3; they may sum to 1 at most"),
        ({"reward_range": (1.0, 1.0)}, "the first must be the smaller"),
        ({"scores": {"luck": 1.0}}, "'advantage', 'reward', 'difficulty', 'diversity', 'recency' or 'staleness'"),
        ({"scores": {"reward": -1.0}}, "greater than or equal to 0"),
        ({"order": "random"}, "'proportional', 'rank' or 'fifo'"),
        ({"keep": "oldest"}, "'newest', 'highest' or 'reservoir'"),
        ({"capacity": 0}, "greater than or equal to 1"),
        ({"epsilon": 0.0}, "greater than 0"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says.replace("(", r"\(")):
        PrioritySettings.model_validate(given)


def test_a_run_file_may_name_scores_and_quotas() -> None:
    chosen = PrioritySettings.model_validate(
        {"order": "rank", "scores": {"advantage": 1, "staleness": 0.5}, "quotas": {"math": 0.7, "code": 0.3}}
    )
    assert chosen.order == "rank"
    assert chosen.scores == {"advantage": 1.0, "staleness": 0.5}
