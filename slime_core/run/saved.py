"""What a checkpoint's own two files hold, as a schema: a value of another shape is damage, like a byte that changed.

Example:

    manifest = Manifest.model_validate_json(text)       # ValidationError, which is a ValueError
    manifest.files["state.json"].bytes
"""

from datetime import date
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
)

from slime_core.run.accounts import GroupState
from slime_core.sample import GroupId

SCHEMA_VERSION = 1


def _parsed(name: str) -> str:
    GroupId.parse(name)
    return name


GroupName = Annotated[str, AfterValidator(_parsed)]
"""A group's id as text."""
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""In hexadecimal."""


def first_problem(error: ValueError) -> str:
    """The first thing that is wrong, in a line."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]


class _Saved(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class SavedFile(_Saved):
    """A file as it was written."""

    bytes: NonNegativeInt
    """Its size."""
    sha256: Sha256
    """Of its contents."""


class Manifest(_Saved):
    """manifest.json: every file of a checkpoint, with size and checksum."""

    schema_version: int
    """Of both files."""
    rollout_id: NonNegativeInt
    """Rollouts that the checkpoint contains."""
    files: dict[str, SavedFile]
    """Every other file, by its path in the checkpoint."""


class SavedAccounts(_Saved):
    """What a checkpoint holds of the ledger."""

    offset: NonNegativeInt
    """Bytes of the ledger's file."""
    sha256: Sha256
    """Of those bytes."""
    max_uses: PositiveInt
    """Uses that a group is allowed."""
    live: dict[GroupName, Literal["drawn", "finished", "buffered"]]
    """Groups that have not ended."""
    uses: dict[GroupName, PositiveInt]
    """Of live groups."""
    ended: dict[Literal["trained", "dropped"], NonNegativeInt]
    """How many ended how."""
    recorded: dict[Literal[*(state.value for state in GroupState)], NonNegativeInt]  # type: ignore[valid-type]  # pydantic reads it when it runs
    """Moves to each state."""
    reasons: dict[str, PositiveInt]
    """Dropped groups."""
    used: dict[Annotated[str, Field(pattern=r"^[1-9][0-9]*$")], NonNegativeInt]
    """Ended groups by their uses."""


class SavedState(_Saved):
    """state.json; what buffer, data source and scheduler hold is theirs to check, and a loop may add its own."""

    model_config = ConfigDict(extra="allow")

    step: NonNegativeInt
    """Optimizer steps done."""
    metrics_position: NonNegativeInt
    """Bytes of metrics.jsonl."""
    plugins: dict[str, JsonValue]
    """Versions, by what they were chosen for."""
    config: dict[str, JsonValue]
    """Keys of the run."""
    day: date | None = None
    """The date that chat templates write: of the run's first start."""
    data_source: dict[str, JsonValue] | None = None
    """Of a run that generates, as the next three."""
    scheduler: dict[str, JsonValue] | None = None
    """Work that was in flight."""
    buffer: dict[str, JsonValue] | None = None
    """Groups that wait."""
    train_steps: NonNegativeInt | None = None
    """Optimizer steps of the whole run, which the learning rate's decay follows; None: unknown."""
    ledger: SavedAccounts | None = None
    """Accounts of all groups."""
