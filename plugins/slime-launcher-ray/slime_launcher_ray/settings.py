"""Settings of `[launcher.ray]`."""

from pydantic import Field, JsonValue, field_validator

from slime_core.roles import Settings


class RaySettings(Settings):
    """Which cluster to use, and how long to wait for it."""

    address: str | None = Field(
        None,
        description="HOST:PORT of a cluster's head, or `auto` for the cluster last started on this node. Default: "
        "RAY_ADDRESS; if it is not set, the run starts a local cluster.",
    )
    num_gpus: int | None = Field(
        None, ge=0, le=4096, description="Number of GPUs of a local cluster. Default: the GPUs that Ray detects."
    )
    object_store_mb: int | None = Field(
        None,
        ge=80,
        le=2**24,
        description="Size of a local cluster's object store in shared memory, in MiB. Default: chosen by Ray.",
    )
    dashboard: bool = Field(False, description="Serve Ray's dashboard for a local cluster.")
    start_timeout_s: float = Field(120.0, gt=0, le=1e7, description="Seconds that a local cluster may take to start.")
    placement_timeout_s: float = Field(
        300.0, ge=0, le=1e7, description="Seconds that a group waits for resources that other runs use."
    )
    runtime_env: dict[str, JsonValue] = Field(
        {}, description="Ray's runtime environment for all workers, such as working_dir, py_modules or pip."
    )

    @field_validator("address")
    @classmethod
    def _check_address(cls, value: str | None) -> str | None:
        if value is None or value == "auto":
            return value
        host, _, port = value.rpartition(":")
        if "://" in value or not host or not port.isdecimal():
            raise ValueError(
                f"{value!r} is not the address of a head; expected HOST:PORT as `ray status` shows it (Ray's default "
                "port is 6379), or auto. From outside the cluster use `ray job submit`"
            )
        return value

    @field_validator("runtime_env")
    @classmethod
    def _check_runtime_env(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if "env_vars" in value:
            raise ValueError("env_vars is not allowed, since Ray logs its values. Set these variables on the nodes")
        return value
