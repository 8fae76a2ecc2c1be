"""RemoteSettings: which AgentCore runtime to invoke, how often, and where its results are."""

import re
from importlib.util import find_spec
from typing import Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, JsonValue, field_validator, model_validator

from slime_agent_openai.settings import CommonSettings, is_loopback

ARN = re.compile(r"arn:aws[a-z-]*:bedrock-agentcore:(?P<region>[a-z0-9-]+):\d{12}:runtime/[A-Za-z][\w-]*")
"""ARN of a runtime."""
EXAMPLE_ARN = "arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/my_agent-a1B2c3D4e5"
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
PREFIX = re.compile(r"[\w.-]+(/[\w.-]+)*", re.ASCII)
RESERVED = ("exp_id", "input_id", "s3_bucket", "base_url", "api_key", "model_id", "evaluation")
"""Fields of `_rollout` that the run sets."""


class RemoteSettings(CommonSettings):
    """`[generator.agent_remote]`."""

    model_config = ConfigDict(protected_namespaces=())  # model_id is the runtime's name for it

    agent_runtime_arn: str = Field(description="ARN of the runtime, which includes its region.")
    s3_bucket: str = Field(description="S3 bucket that receives the results.")
    exp_id: str = Field(description="First part of the results' keys: EXP_ID/INPUT_ID/SESSION_ID.json.")
    model_id: str = Field("default", min_length=1, description="Name of the model that the agent receives.")
    prompt_key: str = Field(
        "prompt", description="Payload key for the prompt, unless the row's metadata has it. Empty: no prompt."
    )
    label_key: str = Field("answer", description="Payload key for the label, with the same rules.")
    reward_key: str = Field(
        "rewards",
        description="Result key for the reward: a number, a list whose last number counts, or numbers by name. Empty: "
        "use the run's rewards.",
    )
    rollout: dict[str, JsonValue] = Field(
        {}, description="More entries of the payload's _rollout, such as sampling_params."
    )
    max_concurrent: int = Field(100, ge=1, le=1_000_000, description="Maximum number of concurrent runtime sessions.")
    max_pool_connections: int = Field(
        100, ge=1, le=65_536, description="Maximum number of connections to AWS and of concurrent calls."
    )
    tps_limit: float = Field(
        25.0, gt=0, le=1_000_000, description="Maximum invocations and stops per second; keep it below the AWS quota."
    )
    max_retry_attempts: int = Field(
        5, ge=0, le=1000, description="Retries of an invocation that the runtime did not accept."
    )
    invoke_seconds: float = Field(
        120.0, gt=0, le=1e7, description="Seconds for the runtime to accept an invocation, including a cold start."
    )
    initial_interval: float = Field(
        0.5, gt=0, le=1e7, description="Seconds between the first and the second poll for a result."
    )
    max_interval: float = Field(5.0, gt=0, le=1e7, description="Maximum seconds between two polls.")
    backoff_factor: float = Field(1.5, ge=1, le=1000, description="Factor by which the interval grows with each poll.")
    endpoint_url: str = Field("", description="URL of the runtime's API. Empty: AWS in the ARN's region.")
    s3_endpoint_url: str = Field("", description="URL of S3. Empty: AWS.")

    @field_validator("agent_runtime_arn")
    @classmethod
    def _check_arn(cls, arn: str) -> str:
        if not ARN.fullmatch(arn):
            raise ValueError(f"{arn!r:.200} is not an ARN of an AgentCore runtime. Write one such as {EXAMPLE_ARN}")
        return arn

    @field_validator("s3_bucket")
    @classmethod
    def _check_bucket(cls, bucket: str) -> str:
        if not BUCKET.fullmatch(bucket):
            raise ValueError(
                f"{bucket!r:.200} is not a bucket name: use 3 to 63 lower-case letters, digits, dots and hyphens, "
                "without s3://. A path belongs in exp_id"
            )
        return bucket

    @field_validator("exp_id")
    @classmethod
    def _check_prefix(cls, exp_id: str) -> str:
        if not PREFIX.fullmatch(exp_id):
            raise ValueError(f'{exp_id!r:.200} is not a key: use letters, digits, "_", ".", "-", and "/" between parts')
        return exp_id

    @field_validator("rollout")
    @classmethod
    def _check_rollout(cls, rollout: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if reserved := [name for name in RESERVED if name in rollout]:
            raise ValueError(f"the run sets {reserved[0]} itself. Remove it")
        return rollout

    @field_validator("endpoint_url", "s3_endpoint_url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        if url and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
            raise ValueError(f"{url!r:.200} is not a URL. Write http:// or https:// and a host")
        return url

    @model_validator(mode="after")
    def _check_reachable(self) -> Self:
        if self.endpoint_url and is_loopback(urlsplit(self.endpoint_url).hostname or ""):
            return self
        if is_loopback(urlsplit(self.public_url).hostname or "" if self.public_url else self.host):
            raise ValueError(
                f"a runtime in AWS cannot reach {self.public_url or self.host}. Set "
                'host = "0.0.0.0", port = 9090 and public_url = "http://ADDRESS:9090", with this machine\'s address '
                "in the runtime's network. If the runtime is on this machine, set endpoint_url"
            )
        return self

    @model_validator(mode="after")
    def _require_boto3(self) -> Self:
        if find_spec("boto3") is None:
            raise ValueError(
                "agent_remote needs boto3, which is not installed. Install it from a checkout of slime-core: "
                "pip install -e . -e './plugins/slime-agent-openai[agentcore]'"
            )
        return self

    @property
    def region(self) -> str:
        found = ARN.fullmatch(self.agent_runtime_arn)
        assert found is not None, "_check_arn accepts no other value"
        return found["region"]
