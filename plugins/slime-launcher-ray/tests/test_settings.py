"""Values that the settings refuse."""

import pytest
from pydantic import ValidationError

from slime_launcher_ray.settings import RaySettings
from tests.tables import table


@table("address", ["ray://10.0.0.1:10001", "http://10.0.0.1:8265", "10.0.0.1", "local"])
def test_invalid_head_address_is_refused(address: str) -> None:
    with pytest.raises(ValidationError, match="expected HOST:PORT"):
        RaySettings(address=address)


def test_head_addresses_are_accepted() -> None:
    assert RaySettings(address="10.0.0.1:6379").address == "10.0.0.1:6379"
    assert RaySettings(address="auto").address == "auto"


def test_runtime_env_must_not_set_env_vars() -> None:
    with pytest.raises(ValidationError, match="env_vars"):
        RaySettings(runtime_env={"env_vars": {"KEY": "1"}})
