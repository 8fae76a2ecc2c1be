"""The plugin's choices: generators that run agents, and rewards by turn. Implementations are imported on first use."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from slime_agent_openai.remote_settings import RemoteSettings
from slime_agent_openai.settings import AgentSettings, CliSettings, CommonSettings, FleetSettings, VerifiersSettings
from slime_agent_openai.turns import COLUMNS, TurnColumns, TurnLevelSettings
from slime_core import hookimpl
from slime_core.roles import (
    Advantage,
    AdvantageSpec,
    BatchTransformSpec,
    Generator,
    GeneratorSpec,
    RewardShaper,
    RewardShaperSpec,
    SampleFilter,
    SampleFilterSpec,
    Settings,
    Setup,
)

if TYPE_CHECKING:
    from aiohttp.web import RouteDef

    from slime_agent_openai.generator import Agents

SLIME_API = "1"


@hookimpl
def slime_generators() -> Iterable[GeneratorSpec]:
    """Generators for agents in Python, as commands and on other machines, and for environments of `verifiers`."""
    yield GeneratorSpec(
        "agent",
        _agent,
        AgentSettings,
        "Unmodified Python agents that use OpenAI's or Anthropic's protocol",
        renders_prompts=True,
    )
    yield GeneratorSpec(
        "agent_cli",
        _agent_cli,
        CliSettings,
        "Agents that are commands, one process per sample",
        scores=False,
        renders_prompts=True,
    )
    yield GeneratorSpec(
        "agent_fleet",
        _agent_fleet,
        FleetSettings,
        "Agents on other machines, which fetch tasks over HTTP",
        renders_prompts=True,
    )
    yield GeneratorSpec(
        "agent_remote",
        _agent_remote,
        RemoteSettings,
        "Agents in an Amazon Bedrock AgentCore runtime, one session per sample",
        max_concurrency=lambda settings: settings.max_concurrent,  # the wait for a worker is not the sample's time
        renders_prompts=True,
    )
    yield GeneratorSpec(
        "verifiers",
        _verifiers,
        VerifiersSettings,
        "Environments of the verifiers library",
        renders_prompts=True,
    )


@hookimpl
def slime_batch_transforms() -> Iterable[BatchTransformSpec]:
    """Rewards by turn, as columns."""
    yield BatchTransformSpec(
        "turn_rewards", TurnColumns, summary="Columns with an agent's rewards by turn, for turn_level", columns=COLUMNS
    )


@hookimpl
def slime_advantages() -> Iterable[AdvantageSpec]:
    """The estimator that reads the columns of `turn_rewards`."""
    yield AdvantageSpec(
        "turn_level",
        _turn_level,
        TurnLevelSettings,
        "Return of each turn, relative to the same turn in the rest of its group",
        token_columns=tuple(COLUMNS),
        compares_samples=lambda settings: True,
    )


@hookimpl
def slime_reward_shapers() -> Iterable[RewardShaperSpec]:
    """A shaper that divides a reward among the samples of an execution."""
    yield RewardShaperSpec("agent_split", _split, summary="Divides a reward among the samples of its execution")


@hookimpl
def slime_sample_filters() -> Iterable[SampleFilterSpec]:
    """A filter that selects which samples of an execution are trained on."""
    yield SampleFilterSpec("agent_last_branch", _last_branch, summary="Trains on the main conversation only")


def _split(settings: Settings, setup: Setup) -> RewardShaper:
    from slime_agent_openai.samples import Split

    return Split()


def _last_branch(settings: Settings, setup: Setup) -> SampleFilter:
    from slime_agent_openai.samples import LastBranch

    return LastBranch()


def _turn_level(settings: TurnLevelSettings, setup: Setup) -> Advantage:
    from slime_agent_openai.turn_level import TurnLevel

    return TurnLevel(settings)


def _agent(settings: AgentSettings, setup: Setup) -> Generator:
    from slime_agent_openai.workers import Workers

    agents = Workers(
        settings.agent,
        workers=settings.workers,
        agents_per_worker=settings.agents_per_worker,
        memory_mb=settings.memory_mb,
    )
    return _generator(settings, agents)


def _verifiers(settings: VerifiersSettings, setup: Setup) -> Generator:
    from slime_agent_openai.workers import Workers

    agents = Workers(
        "slime_agent_openai.verifiers_agent:agent",
        workers=settings.workers,
        agents_per_worker=settings.agents_per_worker,
        memory_mb=settings.memory_mb,
        arguments={"environment": settings.environment, "arguments": settings.arguments},
    )
    return _generator(settings, agents)


def _agent_cli(settings: CliSettings, setup: Setup) -> Generator:
    from slime_agent_openai.cli_agent import CliAgents

    return _generator(settings, CliAgents(settings.command, settings.env, settings.memory_mb))


def _agent_fleet(settings: FleetSettings, setup: Setup) -> Generator:
    from slime_agent_openai.fleet import Fleet

    fleet = Fleet(settings.token.get_secret_value(), lease_s=settings.lease_s)
    return _generator(settings, fleet, fleet.routes, fleet.announce)


def _agent_remote(settings: RemoteSettings, setup: Setup) -> Generator:
    from slime_agent_openai.aws import Aws
    from slime_agent_openai.remote_agents import RemoteAgents

    return _generator(settings, RemoteAgents(Aws(settings), settings))


def _generator(
    settings: CommonSettings,
    agents: "Agents",
    extra_routes: "Sequence[RouteDef]" = (),
    announce: Callable[[str], None] | None = None,
) -> Generator:
    from slime_agent_openai.gateway import Address, Gateway
    from slime_agent_openai.generator import AgentGenerator
    from slime_agent_openai.session import SessionLimits

    address = Address(settings.host, settings.port, settings.public_url)
    gateway = Gateway(
        address, hosted=settings.hosted_tools, subagent_headers=settings.subagent_headers, extra_routes=extra_routes
    )
    limits = SessionLimits(
        settings.max_turns,
        settings.max_turn_tokens,
        settings.on_sampling,
        settings.on_constraints,
        keeps_template=settings.context == "template",
    )
    return AgentGenerator(
        agents,
        gateway,
        limits,
        parser=settings.parser,
        seconds=settings.seconds,
        announce=announce,
    )
