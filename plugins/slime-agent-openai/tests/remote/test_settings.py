import sys

import pytest
from cloud_server import ARN
from pydantic import ValidationError

from slime_agent_openai.plugin import slime_generators
from slime_agent_openai.remote_settings import REFUSED, RemoteSettings

GIVEN: dict[str, object] = {
    "agent_runtime_arn": ARN,
    "s3_bucket": "results",
    "exp_id": "math",
    "host": "0.0.0.0",
    "port": 9090,
    "public_url": "http://10.0.0.7:9090",
}
LOCAL = {**GIVEN, "host": "127.0.0.1", "port": 0, "public_url": ""}


def settings(**changes: object) -> RemoteSettings:
    return RemoteSettings.model_validate(GIVEN | changes)


def test_the_region_is_the_arns() -> None:
    assert settings().region == "us-west-2"
    assert settings(agent_runtime_arn=ARN.replace("aws:", "aws-us-gov:").replace("us-west-2", "us-gov-west-1")).region


@pytest.mark.parametrize(
    "arn",
    [
        "my_agent-a1B2c3D4e5",
        ARN.replace("bedrock-agentcore", "lambda"),
        ARN.replace("123456789012", "1234"),
        f"{ARN}/runtime-endpoint/DEFAULT",
        "",
    ],
)
def test_what_is_no_arn_of_a_runtime_is_refused(arn: str) -> None:
    with pytest.raises(
        ValidationError, match="this is not an ARN of an AgentCore runtime; one looks like arn:aws:bedrock"
    ):
        settings(agent_runtime_arn=arn)


@pytest.mark.parametrize("bucket", ["s3://results", "results/math", "Results", "a", "-results", "x" * 64])
def test_what_is_no_bucket_is_refused(bucket: str) -> None:
    with pytest.raises(
        ValidationError, match=r"this is not a name of a bucket: .* without a path, which exp_id is for"
    ):
        settings(s3_bucket=bucket)


@pytest.mark.parametrize("exp_id", ["", "/math", "math/", "a//b", "two words", "größe"])
def test_what_is_no_beginning_of_a_key_is_refused(exp_id: str) -> None:
    with pytest.raises(ValidationError, match="write letters, digits"):
        settings(exp_id=exp_id)


@pytest.mark.parametrize(
    "changes",
    [
        {"host": "127.0.0.1", "public_url": ""},
        {"host": "0.0.0.0", "public_url": "http://localhost:9090"},
        {"host": "127.0.0.1", "public_url": "", "endpoint_url": "https://agents.example.com"},
    ],
)
def test_a_gateway_that_a_runtime_cannot_reach_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=r'a runtime in AWS cannot reach .*: write host = "0\.0\.0\.0"'):
        settings(**changes)


def test_a_runtime_of_this_machine_reaches_its_loopback_address() -> None:
    made = RemoteSettings.model_validate({**LOCAL, "endpoint_url": "http://127.0.0.1:8080"})
    assert (made.host, made.public_url) == ("127.0.0.1", "")


def test_a_tunnel_may_lead_to_a_loopback_address() -> None:
    assert settings(host="127.0.0.1", public_url="https://me.example.com").host == "127.0.0.1"


def test_a_free_port_is_one_that_nobody_elsewhere_knows() -> None:
    with pytest.raises(
        ValidationError, match=r"port = 0 takes a free one, which http://10\.0\.0\.7:9090 does not lead"
    ):
        settings(port=0)


@pytest.mark.parametrize("name", ["endpoint_url", "s3_endpoint_url", "public_url"])
def test_what_is_no_url_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="this is not a URL"):
        settings(**{name: "10.0.0.7:9090"})


@pytest.mark.parametrize("name", ["base_url", "api_key", "input_id"])
def test_what_the_run_writes_into_rollout_is_no_setting(name: str) -> None:
    with pytest.raises(ValidationError, match=f"the run itself writes {name}"):
        settings(rollout={name: "x"})
    assert settings(rollout={"sampling_params": {"max_tokens": 7}}).rollout == {"sampling_params": {"max_tokens": 7}}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_called_otherwise_is_refused_by_name(name: str) -> None:
    assert name not in RemoteSettings.model_fields
    with pytest.raises(ValidationError) as caught:
        settings(**{name: 1})
    (told,) = caught.value.errors()
    assert (told["loc"], told["msg"]) == ((name,), REFUSED[name])


def test_all_that_is_refused_is_told_at_once_as_a_run_tells_it() -> None:
    spec = next(each for each in slime_generators() if each.name == "agent_remote")
    given = GIVEN | {"acr_timeout": 900, "gateway_port": 9090}
    with pytest.raises(ValidationError) as caught:
        spec.model.model_validate(given)
    told = {each["loc"]: each["msg"] for each in caught.value.errors()}
    assert list(told) == [("acr_timeout",), ("gateway_port",)]
    assert "it is called seconds here" in told["acr_timeout",]
    assert "it is called port here" in told["gateway_port",]


def test_without_boto3_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(
        ValidationError, match=r"needs boto3, which is not installed: from a checkout of slime-core: pip install -e"
    ):
        settings()
