"""Aws: a run's calls to AWS through boto3 clients. Each call blocks the calling thread.

An invocation that may have started an agent is never sent twice: two agents would share one session. botocore does not
retry; `NotAccepted` marks the calls that may be repeated.

Example:

    aws = Aws(settings)
    aws.open()                                          # ConfigError: no credentials, no such bucket
    answer = aws.invoke(session_id, payload)
    raw = aws.fetch("math/1/2.json")                    # None: not there yet
"""

from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Protocol, TypeVar

from slime_agent_openai.errors import AgentError
from slime_agent_openai.remote_settings import RemoteSettings
from slime_core.errors import ConfigError

CONNECT_S = 10.0  # Seconds to connect
ANSWER_S = 60.0  # Seconds for an answer from S3
BUSY = (402, 409, 429, 503)
"""HTTP statuses after which the same call may succeed later: over a quota, session busy, throttled, unavailable."""
REFUSED = (400, 401, 403, 404)  # HTTP statuses that a retry does not change
LONGEST = 64 << 20  # Maximum bytes of an answer or a result
ResultT = TypeVar("ResultT")


class NotAccepted(AgentError):
    """A call that changed nothing: the invocation started no agent."""

    def __init__(self, reason: str, detail: str, *, may_retry: bool) -> None:
        super().__init__(reason, detail)
        self.may_retry = may_retry


class Body(Protocol):
    """Body of an answer."""

    def read(self, amt: int | None = None) -> bytes: ...


class RuntimeClient(Protocol):
    """The part of boto3's `bedrock-agentcore` client that is used here."""

    def invoke_agent_runtime(
        self, *, agentRuntimeArn: str, runtimeSessionId: str, contentType: str, accept: str, payload: bytes
    ) -> dict[str, Body]: ...
    def stop_runtime_session(self, *, agentRuntimeArn: str, runtimeSessionId: str) -> object: ...
    def close(self) -> None: ...


class S3Client(Protocol):
    """The part of boto3's `s3` client that is used here."""

    def head_bucket(self, *, Bucket: str) -> object: ...
    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Body]: ...
    def close(self) -> None: ...


class Aws:
    """Safe to call from many threads at once, after `open`."""

    def __init__(self, settings: RemoteSettings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._is_closed = False
        self._runtime: RuntimeClient | None = None
        self._s3: S3Client | None = None

    def open(self) -> None:
        """Create the clients. Raises ConfigError without credentials or without access to the bucket."""
        import boto3
        from botocore.config import Config
        from botocore.session import Session

        settings = self._settings
        core_session = Session()
        core_session.register_component("data_loader", _loader())
        session = boto3.Session(botocore_session=core_session, region_name=settings.region)
        if session.get_credentials() is None:
            raise ConfigError(
                "no AWS credentials found. Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run on "
                "a machine whose role grants access"
            )
        common = {"max_pool_connections": settings.max_pool_connections, "connect_timeout": CONNECT_S}
        no_retry = Config(
            read_timeout=settings.invoke_seconds, retries={"mode": "standard", "total_max_attempts": 1}, **common
        )
        retrying = Config(
            read_timeout=ANSWER_S,
            retries={"mode": "standard", "total_max_attempts": settings.max_retry_attempts + 1},
            s3={"addressing_style": "path"} if settings.s3_endpoint_url else {},
            **common,
        )
        self._runtime = session.client("bedrock-agentcore", endpoint_url=settings.endpoint_url or None, config=no_retry)
        self._s3 = session.client("s3", endpoint_url=settings.s3_endpoint_url or None, config=retrying)
        try:
            self._check_bucket(self._s3)
        finally:
            with self._lock:
                if self._is_closed:  # by another thread while this one opened
                    self._close()

    def _check_bucket(self, s3: S3Client) -> None:
        """Refuse a bucket without list permission: S3 then answers 403 for a result that does not exist yet."""
        bucket = self._settings.s3_bucket
        try:
            _run(lambda: s3.head_bucket(Bucket=bucket))
        except AgentError as error:
            raise ConfigError(
                f"the results bucket s3://{bucket} is not accessible: {error.detail}. Check its name, and that these "
                "credentials allow s3:ListBucket and s3:GetObject on it"
            ) from None

    def invoke(self, session_id: str, payload: bytes) -> bytes:
        """Start an agent and return the runtime's answer. Raises NotAccepted: no agent was started."""
        runtime, arn = self._runtime, self._settings.agent_runtime_arn
        assert runtime is not None, "call open() first"
        return _run(
            lambda: runtime.invoke_agent_runtime(
                agentRuntimeArn=arn,
                runtimeSessionId=session_id,
                contentType="application/json",
                accept="application/json",
                payload=payload,
            )["response"].read(LONGEST)
        )

    def stop(self, session_id: str) -> None:
        runtime, arn = self._runtime, self._settings.agent_runtime_arn
        assert runtime is not None, "call open() first"
        _run(lambda: runtime.stop_runtime_session(agentRuntimeArn=arn, runtimeSessionId=session_id))

    def fetch(self, key: str) -> bytes | None:
        """The object under a key; None if it does not exist. Raises AgentError: it cannot be read."""
        s3, bucket = self._s3, self._settings.s3_bucket
        assert s3 is not None, "call open() first"
        try:
            return _run(lambda: s3.get_object(Bucket=bucket, Key=key)["Body"].read(LONGEST))
        except AgentError as error:
            if error.reason == "agent_remote_NoSuchKey":
                return None
            raise

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._close()

    def _close(self) -> None:
        for client in (self._runtime, self._s3):
            if client is not None:
                client.close()


@cache
def _loader() -> object:
    """Loader of AWS's service descriptions, one per process: parsing them blocks every event loop."""
    from botocore.loaders import Loader

    return Loader()


def _run(call: Callable[[], ResultT]) -> ResultT:
    """The result of a call. Raises NotAccepted if the call changed nothing, else AgentError."""
    from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, EndpointConnectionError

    try:
        return call()
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        code = str(error.response.get("Error", {}).get("Code") or status)
        if status in (*BUSY, *REFUSED):
            raise NotAccepted(f"agent_remote_{code}", str(error), may_retry=status in BUSY) from None
        raise AgentError(f"agent_remote_{code}", str(error)) from None
    except (ConnectTimeoutError, EndpointConnectionError) as error:
        raise NotAccepted(f"agent_remote_{type(error).__name__}", str(error), may_retry=True) from None
    except BotoCoreError as error:
        raise AgentError(f"agent_remote_{type(error).__name__}", str(error)) from None
