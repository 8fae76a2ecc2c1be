"""Rollout: generate, score and filter groups on one asyncio loop; evaluate through the same slots.

Example:

    scheduler = Waves(Parts(policy, source, engine, tokenizer, choices, None, [], emit))
    result = await scheduler.collect(rollout_id=0, want=64)
"""

from slime_core.rollout.checked_engine import CheckedEngine, CheckpointEngine
from slime_core.rollout.choices import RM_TYPE, Choices
from slime_core.rollout.engines import EnginePool, Limits
from slime_core.rollout.environment import ENVIRONMENT, Environment
from slime_core.rollout.evaluate import EvalResult, EvalSet, evaluate
from slime_core.rollout.filters import NonzeroStd, NonzeroStdWithFallback
from slime_core.rollout.generate import SingleTurn, response_text
from slime_core.rollout.lifecycle import Lifecycle
from slime_core.rollout.policies import POLICIES, make_scheduler
from slime_core.rollout.policy import (
    RewardOnError,
    RolloutPolicy,
    Scoring,
    UsedGenerator,
    UsedReward,
)
from slime_core.rollout.scheduler import Parts, RolloutResult, Scheduler
from slime_core.rollout.stream import Room, Stream
from slime_core.rollout.streamed_text import StreamedText
from slime_core.rollout.teacher import ServedTeacher
from slime_core.rollout.truncated import Truncated
from slime_core.rollout.waiting import LongWaits
from slime_core.rollout.waves import OneAhead, Waves

__all__ = [
    "ENVIRONMENT",
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
    "Room",
    "Scheduler",
    "Scoring",
    "ServedTeacher",
    "SingleTurn",
    "Stream",
    "StreamedText",
    "Truncated",
    "UsedGenerator",
    "UsedReward",
    "Waves",
    "evaluate",
    "make_scheduler",
    "response_text",
]
