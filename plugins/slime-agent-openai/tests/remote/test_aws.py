import pytest
from cloud import CREDENTIALS, Cloud
from cloud_server import ARN, BUCKET

from slime_agent_openai.aws import Aws
from slime_agent_openai.remote_settings import RemoteSettings
from slime_core.errors import ConfigError


def made(cloud: Cloud, bucket: str = BUCKET, arn: str = ARN) -> Aws:
    given = cloud.settings(agent_runtime_arn=arn, s3_bucket=bucket, max_retry_attempts=0)
    return Aws(RemoteSettings.model_validate(given))


@pytest.mark.parametrize(("bucket", "said"), [("no-such", r"\(404\)"), ("forbidden", r"\(403\)")])
def test_inaccessible_bucket_is_refused_at_start(cloud: Cloud, bucket: str, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"the results bucket s3://{bucket} is not accessible: .*{said}"):
        made(cloud, bucket).open()


def test_missing_credentials_are_refused_at_start(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(ConfigError, match=r"no AWS credentials found\. Set AWS_PROFILE, or AWS_ACCESS_KEY_ID"):
        made(cloud).open()


def test_open_after_close_leaves_no_connection(cloud: Cloud) -> None:
    aws = made(cloud)
    aws.close()
    aws.open()
    aws.close()
