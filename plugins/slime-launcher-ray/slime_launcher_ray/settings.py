"""Settings of `[launcher.ray]`."""

from pydantic import Field, JsonValue, field_validator

from slime_core.roles import Settings


class RaySettings(Settings):
    """Which cluster, and how long to wait for it."""

    address: str | None = Field(
        None,
        description="HOST:PORT of a cluster's head, or `auto` for the one of this node; default: RAY_ADDRESS where it "
        "is set, else a cluster of this machine, for this run alone.",
    )
    num_gpus: int | None = Field(
        None, ge=0, le=4096, description="GPUs that a cluster of this machine counts; default: the GPUs that Ray finds."
    )
    object_store_mb: int | None = Field(
        None,
        ge=80,
        le=2**24,
        description="MiB of shared memory of such a cluster's object store; default: Ray's own choice.",
    )
    dashboard: bool = Field(False, description="Serve Ray's dashboard for such a cluster.")
    start_timeout_s: float = Field(120.0, gt=0, le=1e7, description="Seconds for a cluster to start, or to be joined.")
    placement_timeout_s: float = Field(
        300.0, ge=0, le=1e7, description="Seconds that a group waits for room that others have taken."
    )
    runtime_env: dict[str, JsonValue] = Field(
        {}, description="Ray's runtime environment of every worker: working_dir, py_modules, pip and the like."
    )

    @field_validator("address")
    @classmethod
    def _check_address(cls, value: str | None) -> str | None:
        if value is None or value == "auto":
            return value
        host, _, port = value.rpartition(":")
        if "://" in value or not host or not port.isdecimal():
            raise ValueError(
                f"{value!r} is not an address of a head: expected HOST:PORT, as `ray status` has it (6379 is Ray's "
                "usual port), or auto. From outside of the cluster use `ray job submit`"
            )
        return value

    @field_validator("runtime_env")
    @classmethod
    def _check_runtime_env(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if "env_vars" in value:
            raise ValueError("env_vars: what a driver knows is not sent to a cluster's logs; set it on its nodes")
        return value
