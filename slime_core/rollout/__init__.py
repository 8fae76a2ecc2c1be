"""Rollout: generate, score and filter groups on one asyncio loop; evaluate through the same slots.

Example:

    scheduler = Scheduler(policy=policy, source=source, engine=engine, tokenizer=tokenizer, ...)
    result = await scheduler.collect(rollout_id=0, want=64)
"""

from slime_core.rollout.evaluate import EvalResult, EvalSet, evaluate
from slime_core.rollout.filters import NonzeroStd, NonzeroStdWithFallback
from slime_core.rollout.generate import SingleTurn
from slime_core.rollout.policy import RewardOnError, RewardUse, RolloutPolicy
from slime_core.rollout.scheduler import RolloutResult, Scheduler

__all__ = [
    "EvalResult",
    "EvalSet",
    "NonzeroStd",
    "NonzeroStdWithFallback",
    "RewardOnError",
    "RewardUse",
    "RolloutPolicy",
    "RolloutResult",
    "Scheduler",
    "SingleTurn",
    "evaluate",
]
