"""What a checkpoint's own files may hold, and how the first thing that is wrong is said."""

import pytest
from pydantic import ValidationError

from slime_core.run.ledger import Manifest, SavedAccounts, SavedState, first_problem
from slime_core.sample import Json
from tests.tables import table

DIGEST = "0123456789abcdef" * 4
GROUP = "train.jsonl:e0:r1:d1"
MANIFEST: dict[str, Json] = {
    "schema_version": 1,
    "rollout_id": 0,
    "files": {"state.json": {"bytes": 0, "sha256": DIGEST}},
}
ACCOUNTS: dict[str, Json] = {
    "offset": 0,
    "sha256": DIGEST,
    "max_uses": 1,
    "live": {GROUP: "buffered"},
    "uses": {GROUP: 1},
    "ended": {"trained": 0, "dropped": 0},
    "recorded": {"drawn": 0, "finished": 0, "buffered": 0, "trained": 0, "dropped": 0},
    "reasons": {"old": 1},
    "used": {"1": 0},
}
STATE: dict[str, Json] = {"step": 0, "metrics_position": 0, "plugins": {}, "config": {}}


def test_the_least_values_are_values() -> None:
    assert Manifest.model_validate(MANIFEST).files["state.json"].bytes == 0
    assert SavedAccounts.model_validate(ACCOUNTS).model_dump() == ACCOUNTS
    assert SavedState.model_validate({**STATE, "own": 3}).model_dump(exclude_unset=True) == {**STATE, "own": 3}


def test_a_run_without_rollouts_has_no_accounts() -> None:
    state = SavedState.model_validate(STATE)
    assert (state.data_source, state.scheduler, state.buffer, state.ledger) == (None, None, None, None)


@table(
    "changes, says",
    [
        ({"rollout_id": -1}, "rollout_id: Input should be greater than or equal to 0"),
        ({"rollout_id": "0"}, "rollout_id: Input should be a valid integer"),
        ({"schema_version": None}, "schema_version: Input should be a valid integer"),
        (
            {"files": {"a": {"bytes": -1, "sha256": DIGEST}}},
            "files.a.bytes: Input should be greater than or equal to 0",
        ),
        ({"files": {"a": {"bytes": 1, "sha256": DIGEST[1:]}}}, "files.a.sha256: String should match pattern"),
        ({"files": {"a": {"bytes": 1, "sha256": DIGEST + "0"}}}, "files.a.sha256: String should match pattern"),
        ({"files": {"a": {"bytes": 1, "sha256": DIGEST.upper()}}}, "files.a.sha256: String should match pattern"),
    ],
)
def test_a_manifest_of_another_shape_is_damage(changes: dict[str, Json], says: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Manifest.model_validate(MANIFEST | changes)
    assert first_problem(raised.value).startswith(says)


@table(
    "changes, says",
    [
        ({"offset": -1}, "offset: "),
        ({"max_uses": 0}, "max_uses: Input should be greater than 0"),
        ({"live": {"nobody": "drawn"}}, "live.nobody.[key]: "),
        ({"live": {GROUP: "trained"}}, f"live.{GROUP}: Input should be 'drawn', 'finished' or 'buffered'"),
        ({"uses": {GROUP: 0}}, f"uses.{GROUP}: Input should be greater than 0"),
        ({"ended": {"drawn": 0}}, "ended.drawn.[key]: Input should be 'trained' or 'dropped'"),
        ({"ended": {"trained": -1}}, "ended.trained: "),
        ({"recorded": {"lost": 0}}, "recorded.lost.[key]: "),
        ({"reasons": {"old": 0}}, "reasons.old: Input should be greater than 0"),
        ({"used": {"0": 1}}, "used.0.[key]: String should match pattern"),
        ({"used": {"1x": 1}}, "used.1x.[key]: String should match pattern"),
    ],
)
def test_accounts_of_another_shape_are_damage(changes: dict[str, Json], says: str) -> None:
    with pytest.raises(ValidationError) as raised:
        SavedAccounts.model_validate(ACCOUNTS | changes)
    assert first_problem(raised.value).startswith(says)


@table("key", ["step", "metrics_position"])
def test_positions_are_not_below_0(key: str) -> None:
    with pytest.raises(ValidationError) as raised:
        SavedState.model_validate(STATE | {key: -1})
    assert first_problem(raised.value) == f"{key}: Input should be greater than or equal to 0"


def test_what_is_no_object_and_what_is_no_validation_is_said_without_a_place() -> None:
    with pytest.raises(ValidationError) as raised:
        Manifest.model_validate([])
    assert first_problem(raised.value).startswith("Input should be a valid dictionary")
    assert first_problem(ValueError("Expecting value: line 1")) == "Expecting value: line 1"
