"""What a checkpoint's own files may hold, and how the first thing that is wrong is said."""

import pytest
from pydantic import ValidationError

from slime_core.run.ledger import Manifest, SavedLedger, SavedState, first_problem
from slime_core.sample import Json
from tests.tables import table

DIGEST = "0123456789abcdef" * 4
MANIFEST: dict[str, Json] = {
    "schema_version": 1,
    "rollout_id": 0,
    "files": {"state.json": {"bytes": 0, "sha256": DIGEST}},
}
LEDGER: dict[str, Json] = {"offset": 0, "sha256": DIGEST, "max_uses": 1}
STATE: dict[str, Json] = {"step": 0, "metrics_position": 0, "plugins": {}, "config": {}}


def test_the_least_values_are_values() -> None:
    assert Manifest.model_validate(MANIFEST).files["state.json"].bytes == 0
    assert SavedLedger.model_validate(LEDGER).model_dump() == LEDGER
    assert SavedState.model_validate({**STATE, "own": 3}).model_dump(exclude_unset=True) == {**STATE, "own": 3}


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
        ({"step": -1}, "step: Input should be greater than or equal to 0"),
        ({"metrics_position": -1}, "metrics_position: Input should be greater than or equal to 0"),
        ({"ledger": LEDGER | {"offset": -1}}, "ledger.offset: "),
        ({"ledger": LEDGER | {"max_uses": 0}}, "ledger.max_uses: Input should be greater than 0"),
    ],
)
def test_a_state_of_another_shape_is_damage(changes: dict[str, Json], says: str) -> None:
    with pytest.raises(ValidationError) as raised:
        SavedState.model_validate(STATE | changes)
    assert first_problem(raised.value).startswith(says)


def test_what_is_no_object_and_what_is_no_validation_is_said_without_a_place() -> None:
    with pytest.raises(ValidationError) as raised:
        Manifest.model_validate([])
    assert first_problem(raised.value).startswith("Input should be a valid dictionary")
    assert first_problem(ValueError("Expecting value: line 1")) == "Expecting value: line 1"
