import sys

import pytest
from cloud_server import ARN
from pydantic import ValidationError

from slime_agent_openai.remote_settings import RemoteSettings
from tests.tables import table

GIVEN: dict[str, object] = {
    "agent_runtime_arn": ARN,
    "s3_bucket": "results",
    "exp_id": "math",
    "host": "0.0.0.0",
    "port": 9090,
    "public_url": "http://10.0.0.7:9090",
}


def settings(**changes: object) -> RemoteSettings:
    return RemoteSettings.model_validate(GIVEN | changes)


def test_region_comes_from_the_arn() -> None:
    assert settings().region == "us-west-2"
    assert settings(agent_runtime_arn=ARN.replace("aws:", "aws-us-gov:").replace("us-west-2", "us-gov-west-1")).region


@table(
    "changes, said",
    [
        *(
            ({"agent_runtime_arn": arn}, "is not an ARN of an AgentCore runtime. Write one such as arn:aws:bedrock")
            for arn in (
                "my_agent-a1B2c3D4e5",
                ARN.replace("bedrock-agentcore", "lambda"),
                ARN.replace("123456789012", "1234"),
                f"{ARN}/runtime-endpoint/DEFAULT",
                "",
            )
        ),
        *(
            ({"s3_bucket": bucket}, "is not a bucket name: .* A path belongs in exp_id")
            for bucket in ("s3://results", "results/math", "Results", "a", "-results", "x" * 64)
        ),
        *(
            ({"exp_id": each}, "is not a key: use letters, digits")
            for each in ("", "/math", "math/", "a//b", "two words", "größe")
        ),
        *(
            (changes, r'a runtime in AWS cannot reach .*\. Set host = "0\.0\.0\.0"')
            for changes in (
                {"host": "127.0.0.1", "public_url": ""},
                {"host": "0.0.0.0", "public_url": "http://localhost:9090"},
                {"host": "127.0.0.1", "public_url": "", "endpoint_url": "https://agents.example.com"},
            )
        ),
        ({"port": 0}, r"port = 0 takes a free port, which may not be the port of http://10\.0\.0\.7:9090"),
        *(({name: "10.0.0.7:9090"}, "is not a URL") for name in ("endpoint_url", "s3_endpoint_url", "public_url")),
        *(({"rollout": {name: "x"}}, f"the run sets {name} itself") for name in ("base_url", "api_key", "input_id")),
    ],
)
def test_invalid_remote_settings_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        settings(**changes)


def test_missing_boto3_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(
        ValidationError,
        match=r"needs boto3, which is not installed. Install it from a checkout of slime-core: pip install -e",
    ):
        settings()
