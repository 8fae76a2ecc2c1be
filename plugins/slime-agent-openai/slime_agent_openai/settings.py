"""Settings of the generators: what runs, its limits, and where agents reach the model."""

from ipaddress import ip_address
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, JsonValue, SecretStr, field_validator, model_validator

from slime_agent_openai.reference import check
from slime_core import Settings

EXAMPLE_URL = 'public_url = "http://10.0.0.5:8700"'
UNREACHABLE = ("0.0.0.0", "::")  # Addresses to bind that mean all interfaces; clients cannot use them


class CommonSettings(Settings):
    """Settings of all generators of agents."""

    seconds: float = Field(
        600.0, gt=0, le=1e7, description="Seconds that one agent may take, without its wait for a place."
    )
    max_turns: int | None = Field(
        None, ge=1, le=10**9, description="Most replies for one sample; rollout_max_turns also applies."
    )
    max_turn_tokens: int | None = Field(
        None, ge=1, le=10**9, description="Most tokens of one reply; by default as many as are left."
    )
    parser: str = Field(
        "auto",
        description="Parser of the model's tool calls and reasoning, such as hermes. auto: the one that fits the chat "
        "template; slime agent prove MODEL prints it.",
    )
    context: Literal["append", "template"] = Field(
        "append",
        description="append keeps what the model saw; template lets the chat template drop earlier reasoning at a new "
        "question, which starts another sample.",
    )
    on_sampling: Literal["refuse", "ignore"] = Field(
        "refuse",
        description="Whether to refuse or ignore an agent's temperature, min_p or other sampling settings in "
        "training; evaluation uses them.",
    )
    on_constraints: Literal["refuse", "ignore"] = Field(
        "refuse",
        description="Whether to refuse or ignore requests for an output format, such as tool_choice = required, a "
        "JSON Schema or guided_json.",
    )
    hosted_tools: Literal["refuse", "ignore"] = Field(
        "refuse", description="Whether to refuse or ignore tools that a provider runs, such as web_search."
    )
    subagent_headers: list[str] = Field([], description="More request headers that identify a sub-agent.")
    host: str = Field(
        "127.0.0.1", description="Address that the gateway binds; 0.0.0.0 (all addresses) for agents on other machines."
    )
    port: int = Field(
        0, ge=0, le=65535, description="Port of the gateway; 0 takes a free one, for agents on this machine."
    )
    public_url: str = Field(
        "",
        description="URL of the gateway for agents on other machines, such as http://10.0.0.5:8700, without /v1. "
        "Required unless host is a loopback address.",
    )

    @field_validator("parser")
    @classmethod
    def _know_parser(cls, parser: str) -> str:
        from slime_agent_openai.parsers.registry import names, unknown

        if parser not in ("auto", *names()):
            raise ValueError(unknown(parser))
        return parser

    @field_validator("public_url")
    @classmethod
    def _check_public_url(cls, url: str) -> str:
        if not url:
            return url
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"this is not a URL: it begins with http:// or https://, and names a host: {EXAMPLE_URL}")
        if parts.hostname in UNREACHABLE:
            raise ValueError(
                f"{parts.hostname} is what is bound, and nobody reaches it: name this machine, {EXAMPLE_URL}"
            )
        if parts.path.rstrip("/").endswith("/v1"):
            raise ValueError("leave /v1 out: each sample's base URL, with its key and /v1, is made of it")
        return url

    @model_validator(mode="after")
    def _say_where(self) -> Self:
        if not is_loopback(self.host) and not self.public_url:
            raise ValueError(
                f'host = "{self.host}" lets agents on other machines ask, and they must be told by which address: '
                f'write port = {self.port or 8700} and public_url = "http://ADDRESS:{self.port or 8700}", with a name '
                "or an address of this machine that they reach; or leave host out, where agents run on this machine"
            )
        if self.public_url and not self.port:
            raise ValueError(
                f"port = 0 takes a free one, which {self.public_url} does not lead to: write port = "
                f"{urlsplit(self.public_url).port or 8700}"
            )
        return self


class ProcessSettings(CommonSettings):
    """Settings of generators whose agents are processes on this machine."""

    memory_mb: int = Field(
        4096, ge=64, le=2**24, description="Resident MiB of one agent process with all its child processes."
    )


class PooledSettings(ProcessSettings):
    """Settings of generators whose agents share processes."""

    workers: int = Field(2, ge=1, le=4096, description="Processes that run agents.")
    agents_per_worker: int = Field(64, ge=1, le=65_536, description="Agents that run at once in each process.")


class AgentSettings(PooledSettings):
    """`[generator.agent]`."""

    agent: str = Field(description="The agent: ./file.py:function or package.module:function; `def` or `async def`.")

    @field_validator("agent")
    @classmethod
    def _find(cls, agent: str) -> str:
        check(agent)
        return agent


class CliSettings(ProcessSettings):
    """`[generator.agent_cli]`."""

    command: list[str] = Field(
        description="Command and arguments. It runs in a separate folder: use absolute paths. Placeholders: {prompt}, "
        "{url}, {openai_base_url}, {anthropic_base_url}, {api_key} and {model}."
    )
    env: dict[str, str] = Field({}, description="More environment variables; only PATH is inherited.")

    @model_validator(mode="after")
    def _find(self) -> Self:
        from slime_agent_openai.cli_agent import check_command  # imports asyncio, which listing a plugin does not need

        check_command(self.command, self.env)
        return self


class FleetSettings(CommonSettings):
    """`[generator.agent_fleet]`."""

    token: SecretStr = Field(
        description="Token that workers of the fleet send, from the environment: $env:SLIME_FLEET_TOKEN."
    )
    lease_s: float = Field(
        60.0, ge=1, le=1e7, description="Seconds without a report from a worker after which its task goes to another."
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


LOADS = "load_environment"  # Name of the function in packages of environments


class VerifiersSettings(PooledSettings):
    """`[generator.verifiers]`."""

    environment: str = Field(
        description="Environment: an installed package's name, or ./file.py:function or package.module:function that "
        "makes it. The default function is load_environment."
    )
    arguments: dict[str, JsonValue] = Field({}, description="Keyword arguments of that function.")

    @model_validator(mode="after")
    def _find(self) -> Self:
        check(reference_of(self.environment), takes_task=False)
        return self


def reference_of(environment: str) -> str:
    """Reference to the function that makes an environment; a package may have a hub name, with owner and hyphens."""
    if ":" in environment:
        return environment
    if environment.endswith(".py"):
        return f"{environment}:{LOADS}"
    return f"{environment.rpartition('/')[2].replace('-', '_')}:{LOADS}"
