"""Rollout: generate, score and filter groups on one asyncio loop; evaluate through the same slots.

Example:

    scheduler = Waves(Parts(policy, source, engine, tokenizer, choices, None, [], emit))
    result = await scheduler.collect(rollout_id=0, want=64)
"""

from slime_core.rollout.calls import LongWaits
from slime_core.rollout.engine_calls import CheckedEngine, CheckpointEngine, SingleTurn, response_text
from slime_core.rollout.engine_handle import Limits
from slime_core.rollout.engine_pool import EnginePool
from slime_core.rollout.policy import (
    RM_TYPE,
    Choices,
    Lifecycle,
    RewardOnError,
    RolloutPolicy,
    Scoring,
    ServedTeacher,
    UsedGenerator,
    UsedReward,
)
from slime_core.rollout.scheduler import (
    EvalResult,
    EvalSet,
    NonzeroStd,
    NonzeroStdWithFallback,
    OneAhead,
    Parts,
    RolloutResult,
    Scheduler,
    Truncated,
    Waves,
    evaluate,
)
from slime_core.rollout.scoring import ENVIRONMENT, MAIN, Environment, execution_rewards, executions, main_of
from slime_core.rollout.stream import POLICIES, Staleness, Stream, make_scheduler

__all__ = [
    "ENVIRONMENT",
    "MAIN",
    "POLICIES",
    "RM_TYPE",
    "CheckedEngine",
    "CheckpointEngine",
    "Choices",
    "EnginePool",
    "Environment",
    "EvalResult",
    "EvalSet",
    "Lifecycle",
    "Limits",
    "LongWaits",
    "NonzeroStd",
    "NonzeroStdWithFallback",
    "OneAhead",
    "Parts",
    "RewardOnError",
    "RolloutPolicy",
    "RolloutResult",
    "Scheduler",
    "Scoring",
    "ServedTeacher",
    "SingleTurn",
    "Staleness",
    "Stream",
    "Truncated",
    "UsedGenerator",
    "UsedReward",
    "Waves",
    "evaluate",
    "execution_rewards",
    "executions",
    "main_of",
    "make_scheduler",
    "response_text",
]
