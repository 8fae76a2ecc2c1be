"""Rollout: generate, score and filter groups on one asyncio loop; evaluate through the same slots.

Example:

    scheduler = Scheduler(policy=policy, source=source, engine=engine, tokenizer=tokenizer, ...)
    result = await scheduler.collect(rollout_id=0, want=64)
"""

from slime_core.rollout.checked_engine import CheckedEngine
from slime_core.rollout.choices import RM_TYPE, Choices
from slime_core.rollout.engines import EnginePool
from slime_core.rollout.evaluate import EvalResult, EvalSet, evaluate
from slime_core.rollout.filters import NonzeroStd, NonzeroStdWithFallback
from slime_core.rollout.generate import SingleTurn
from slime_core.rollout.long_waits import LongWaits
from slime_core.rollout.policy import (
    GeneratorUse,
    GroupRewardUse,
    NamedChoices,
    RewardOnError,
    RewardUse,
    RolloutPolicy,
    Scoring,
)
from slime_core.rollout.scheduler import RolloutResult, Scheduler

__all__ = [
    "RM_TYPE",
    "CheckedEngine",
    "Choices",
    "EnginePool",
    "EvalResult",
    "EvalSet",
    "GeneratorUse",
    "GroupRewardUse",
    "LongWaits",
    "NamedChoices",
    "NonzeroStd",
    "NonzeroStdWithFallback",
    "RewardOnError",
    "RewardUse",
    "RolloutPolicy",
    "RolloutResult",
    "Scheduler",
    "Scoring",
    "SingleTurn",
    "evaluate",
]
