"""`slime simulate`: policies compared on a small fleet."""

from tests.conftest import Slime
from tests.tables import table

SMALL = ("--engines", 4, "--slots", 2, "--n-samples-per-prompt", 4, "--steps", 2)


def policies(slime: Slime, *options: object) -> dict[str, dict[str, float]]:
    ran = slime.ok("simulate", *SMALL, "--json", *options)
    assert ran.json()["schema_version"] == 1
    return {row["policy"]: row for row in ran.json()["policies"]}


@table(
    "options, message",
    [
        (["--partial-rollout"], "choose --rollout-policy"),
        (["--partial-rollout", "--rollout-policy", "async"], "new weights wait for the end of a rollout"),
        (["--max-staleness", 2, "--rollout-policy", "sync"], "--rollout-policy continuous"),
        (["--engines", 0], "--engines"),
        (["--rollout-policy", "asink"], "continuous"),
    ],
)
def test_what_would_have_no_effect_is_refused(slime: Slime, options: list[object], message: str) -> None:
    assert message in slime.refused("simulate", *options)
