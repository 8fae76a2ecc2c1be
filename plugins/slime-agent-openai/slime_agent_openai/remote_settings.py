"""RemoteSettings: which AgentCore runtime is invoked, how often, and where its results are."""

import re
from importlib.util import find_spec
from typing import Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, JsonValue, field_validator, model_validator

from slime_agent_openai.settings import CommonSettings, is_loopback

ARN = re.compile(r"arn:aws[a-z-]*:bedrock-agentcore:(?P<region>[a-z0-9-]+):\d{12}:runtime/[A-Za-z][\w-]*")
"""That of a runtime."""
EXAMPLE_ARN = "arn:aws:bedrock-agentcore:us-west-2:123456789012:runtime/my_agent-a1B2c3D4e5"
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
PREFIX = re.compile(r"[\w.-]+(/[\w.-]+)*", re.ASCII)
OURS = ("exp_id", "input_id", "s3_bucket", "base_url", "api_key", "model_id", "evaluation")
"""Of `_rollout`, what the run writes itself."""


class RemoteSettings(CommonSettings):
    """`[generator.agent_remote]`."""

    model_config = ConfigDict(protected_namespaces=())  # model_id is the runtime's word

    agent_runtime_arn: str = Field(description="The runtime, by its ARN, which says its region, too.")
    s3_bucket: str = Field(description="The bucket that results are written to.")
    exp_id: str = Field(description="Begins the keys of the results: EXP_ID/INPUT_ID/SESSION_ID.json.")
    model_id: str = Field("default", min_length=1, description="What the agent is told to call the model.")
    prompt_key: str = Field(
        "prompt", description="Where the payload has the prompt, unless the row's metadata has that; empty: nowhere."
    )
    label_key: str = Field("answer", description="Where it has the label; the same holds.")
    reward_key: str = Field(
        "rewards",
        description="Where the result has the reward: a number, numbers of which the last counts, or numbers by name. "
        "Empty: the run's rewards give it.",
    )
    rollout: dict[str, JsonValue] = Field({}, description="More for the payload's _rollout, such as sampling_params.")
    max_concurrent: int = Field(100, ge=1, le=1_000_000, description="Sessions of the runtime at once.")
    max_pool_connections: int = Field(
        100, ge=1, le=65_536, description="Connections to AWS, and calls on them, at once."
    )
    tps_limit: float = Field(
        25.0, gt=0, le=1_000_000, description="Invocations and stops a second, as the quota of the runtime counts them."
    )
    max_retry_attempts: int = Field(
        5, ge=0, le=1000, description="Times that an invocation is sent again that the runtime did not take."
    )
    invoke_seconds: float = Field(
        120.0, gt=0, le=1e7, description="Seconds in which the runtime must take an invocation, its cold start counted."
    )
    initial_interval: float = Field(0.5, gt=0, le=1e7, description="Seconds until a result is first looked for again.")
    max_interval: float = Field(5.0, gt=0, le=1e7, description="The most seconds between two looks.")
    backoff_factor: float = Field(1.5, ge=1, le=1000, description="What the interval grows by with each look.")
    endpoint_url: str = Field("", description="Where the runtime's API answers; empty: AWS, by the region.")
    s3_endpoint_url: str = Field("", description="Where S3 answers, as one of your own does; empty: AWS.")

    @field_validator("agent_runtime_arn")
    @classmethod
    def _check_arn(cls, arn: str) -> str:
        if not ARN.fullmatch(arn):
            raise ValueError(f"this is not an ARN of an AgentCore runtime; one looks like {EXAMPLE_ARN}")
        return arn

    @field_validator("s3_bucket")
    @classmethod
    def _check_bucket(cls, bucket: str) -> str:
        if not BUCKET.fullmatch(bucket):
            raise ValueError(
                "this is not a name of a bucket: 3 to 63 small letters, digits, dots and hyphens, without s3:// and "
                "without a path, which exp_id is for"
            )
        return bucket

    @field_validator("exp_id")
    @classmethod
    def _check_prefix(cls, exp_id: str) -> str:
        if not PREFIX.fullmatch(exp_id):
            raise ValueError('write letters, digits, "_", "." and "-", with "/" between them where it has parts')
        return exp_id

    @field_validator("rollout")
    @classmethod
    def _check_rollout(cls, rollout: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if written := [name for name in OURS if name in rollout]:
            raise ValueError(f"the run itself writes {written[0]}: leave it out")
        return rollout

    @field_validator("endpoint_url", "s3_endpoint_url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        if url and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
            raise ValueError("this is not a URL: it begins with http:// or https://, and names a host")
        return url

    @model_validator(mode="after")
    def _be_reachable(self) -> Self:
        if self.endpoint_url and is_loopback(urlsplit(self.endpoint_url).hostname or ""):
            return self
        if is_loopback(urlsplit(self.public_url).hostname or "" if self.public_url else self.host):
            raise ValueError(
                f"a runtime in AWS cannot reach {self.public_url or self.host}: write "
                'host = "0.0.0.0", port = 9090 and public_url = "http://ADDRESS:9090", with an address of this machine '
                "in the runtime's network; or endpoint_url, where the runtime is on this machine, too"
            )
        return self

    @model_validator(mode="after")
    def _need_boto3(self) -> Self:
        if find_spec("boto3") is None:
            raise ValueError(
                "agent_remote needs boto3, which is not installed: from a checkout of slime-core: "
                "pip install -e . -e './plugins/slime-agent-openai[agentcore]'"
            )
        return self

    @property
    def region(self) -> str:
        found = ARN.fullmatch(self.agent_runtime_arn)
        assert found is not None, "it was checked"
        return found["region"]
