"""What the settings refuse, before anything starts."""

import pytest
from pydantic import ValidationError

from slime_launcher_ray.settings import RaySettings
from tests.tables import table


@table("address", ["ray://10.0.0.1:10001", "http://10.0.0.1:8265", "10.0.0.1", "local"])
def test_what_is_no_address_of_a_head_is_refused(address: str) -> None:
    with pytest.raises(ValidationError, match="expected HOST:PORT"):
        RaySettings(address=address)


def test_addresses_of_heads_are_taken() -> None:
    assert RaySettings(address="10.0.0.1:6379").address == "10.0.0.1:6379"
    assert RaySettings(address="auto").address == "auto"


def test_secrets_are_not_sent_by_a_runtime_environment() -> None:
    with pytest.raises(ValidationError, match="env_vars"):
        RaySettings(runtime_env={"env_vars": {"KEY": "1"}})
