"""Settings of the generators: which agents run, their limits, and the address of the model."""

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
        600.0, gt=0, le=1e7, description="Time limit of one agent in seconds, without its wait for a slot."
    )
    max_turns: int | None = Field(
        None, ge=1, le=10**9, description="Maximum number of replies per sample. rollout_max_turns also applies."
    )
    max_turn_tokens: int | None = Field(
        None, ge=1, le=10**9, description="Maximum tokens per reply. Default: all remaining tokens."
    )
    parser: str = Field(
        "auto",
        description="Parser of the model's tool calls and reasoning, such as hermes. auto selects the parser that fits "
        "the chat template; slime agent prove MODEL prints its name.",
    )
    context: Literal["append", "template"] = Field(
        "append",
        description="append keeps all tokens that the model saw. template lets the chat template drop earlier "
        "reasoning after a user message, which starts another sample.",
    )
    on_sampling: Literal["refuse", "ignore"] = Field(
        "refuse",
        description="Whether to refuse or ignore an agent's own sampling settings, such as temperature, in training. "
        "Evaluation applies them.",
    )
    on_constraints: Literal["refuse", "ignore"] = Field(
        "refuse",
        description="Whether to refuse or ignore output constraints, such as tool_choice = required, a JSON Schema or "
        "guided_json.",
    )
    hosted_tools: Literal["refuse", "ignore"] = Field(
        "refuse", description="Whether to refuse or ignore tools that a provider runs, such as web_search."
    )
    subagent_headers: list[str] = Field([], description="Additional request headers that name a sub-agent.")
    host: str = Field(
        "127.0.0.1", description="Address that the gateway binds. Use 0.0.0.0 for agents on other machines."
    )
    port: int = Field(
        0, ge=0, le=65535, description="Port of the gateway. 0 takes a free one, for agents on this machine."
    )
    public_url: str = Field(
        "",
        description="URL of the gateway for agents on other machines, such as http://10.0.0.5:8700, without /v1. "
        "Required unless host is a loopback address.",
    )

    @field_validator("parser")
    @classmethod
    def _check_parser(cls, parser: str) -> str:
        from slime_agent_openai.parsers.registry import names, unknown_message

        if parser not in ("auto", *names()):
            raise ValueError(unknown_message(parser))
        return parser

    @field_validator("public_url")
    @classmethod
    def _check_public_url(cls, url: str) -> str:
        if not url:
            return url
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r:.200} is not a URL. Write http:// or https:// and a host: {EXAMPLE_URL}")
        if parts.hostname in UNREACHABLE:
            raise ValueError(
                f"agents cannot connect to {parts.hostname}. Write this machine's name or address: {EXAMPLE_URL}"
            )
        if parts.path.rstrip("/").endswith("/v1"):
            raise ValueError("remove /v1: the gateway appends each sample's key and /v1 itself")
        return url

    @model_validator(mode="after")
    def _check_address(self) -> Self:
        if not is_loopback(self.host) and not self.public_url:
            raise ValueError(
                f'host = "{self.host}" serves agents on other machines, which need a URL. Write '
                f'port = {self.port or 8700} and public_url = "http://ADDRESS:{self.port or 8700}", with a name or '
                "an address of this machine. If all agents run on this machine, remove host"
            )
        if self.public_url and not self.port:
            raise ValueError(
                f"port = 0 takes a free port, which may not be the port of {self.public_url}. Write port = "
                f"{urlsplit(self.public_url).port or 8700}"
            )
        return self


class ProcessSettings(CommonSettings):
    """Settings of generators whose agents are processes on this machine."""

    memory_mb: int = Field(
        4096, ge=64, le=2**24, description="Limit of resident memory, in MiB, of an agent process with its children."
    )


class PooledSettings(ProcessSettings):
    """Settings of generators whose agents share processes."""

    workers: int = Field(2, ge=1, le=4096, description="Number of processes that run agents.")
    agents_per_worker: int = Field(64, ge=1, le=65_536, description="Maximum number of concurrent agents per process.")


class AgentSettings(PooledSettings):
    """`[generator.agent]`."""

    agent: str = Field(description="Agent: ./file.py:function or package.module:function, `def` or `async def`.")

    @field_validator("agent")
    @classmethod
    def _check_reference(cls, agent: str) -> str:
        check(agent)
        return agent


class CliSettings(ProcessSettings):
    """`[generator.agent_cli]`."""

    command: list[str] = Field(
        description="Command and arguments. Use absolute paths, since it runs in a separate folder. Placeholders: "
        "{prompt}, {url}, {openai_base_url}, {anthropic_base_url}, {api_key} and {model}."
    )
    env: dict[str, str] = Field({}, description="Additional environment variables. Only PATH is inherited.")

    @model_validator(mode="after")
    def _check_command(self) -> Self:
        from slime_agent_openai.cli_agent import check_command  # imports asyncio, which listing a plugin does not need

        check_command(self.command, self.env)
        return self


class FleetSettings(CommonSettings):
    """`[generator.agent_fleet]`."""

    token: SecretStr = Field(
        description="Secret that the fleet's workers send. Take it from the environment: $env:SLIME_FLEET_TOKEN."
    )
    lease_s: float = Field(
        60.0, ge=1, le=1e7, description="Seconds without a report after which a worker's task goes to another worker."
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


DEFAULT_FUNCTION = "load_environment"  # Name of the function in packages of environments


class VerifiersSettings(PooledSettings):
    """`[generator.verifiers]`."""

    environment: str = Field(
        description="Environment: an installed package's name, or ./file.py:function or package.module:function. The "
        "default function is load_environment."
    )
    arguments: dict[str, JsonValue] = Field({}, description="Keyword arguments of that function.")

    @model_validator(mode="after")
    def _check_reference(self) -> Self:
        check(reference_of(self.environment), takes_task=False)
        return self


def reference_of(environment: str) -> str:
    """Reference to the function that makes an environment; a package may have a hub name, with owner and hyphens."""
    if ":" in environment:
        return environment
    if environment.endswith(".py"):
        return f"{environment}:{DEFAULT_FUNCTION}"
    return f"{environment.rpartition('/')[2].replace('-', '_')}:{DEFAULT_FUNCTION}"
